import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { ModelCallPart } from '../agents/model-call-part.ts';
import type { SubAgentSources } from '../agents/start-sub-agent.ts';
import type { KernelCatalog } from '../catalog/catalog.ts';
import type { CatalogFeatures, EntriesReading, LogReader, LogReading, StartReading } from '../catalog/log-reader.ts';
import type { Cipher } from '../encryption/cipher.ts';
import type { TurnLogReader } from '../engine/turn-log-reader.ts';
import type { SystemTool } from '../tools/system-tool.ts';
import type { SessionQueue } from './agent-sessions/session-queue.ts';
import type { SharedBudgets } from './budgets/shared-budgets.ts';
import type { Catalog } from './catalog.ts';
import type { CodePartOptions } from './code/code-part.ts';
import type { SearchSources } from './code/tools/search-code.ts';
import type { Delegator } from './delegation/delegator.ts';
import type { FileTexts } from './files/file-texts.ts';
import type { RunStates } from './run-support/run-summaries.ts';
import type { SignIns } from './sign-in/sign-ins.ts';
import type { Skills } from './skills/skills.ts';
import type { WebhookDeliverer } from './webhooks/webhook-deliverer.ts';

/**
 * What a feature adds to logs, tools, model calls and sweeps. Each feature is a folder, with a `feature.ts` and a line in
 * `FEATURES` if it adds any of them. Features are called in the order of `FEATURES`.
 */
export interface Feature extends Partial<Pick<CatalogFeatures, 'tablesOfSessions' | 'tablesOfTurns'>> {
  logReaders?: (cipher: Cipher) => LogReader[];
  /** The feature's columns in the row of an accepted turn. */
  columnsOf?: (turn: Parameters<CatalogFeatures['columnsOf']>[0], cipher: Cipher) => ColumnsOfTurn;
  /** Reads the start of a turn for the feature's `logReaders`. */
  readStart?: (start: ReadStart, sources: LogSources) => StartReading | Promise<StartReading>;
  /** Reads new entries of a log for the feature's `logReaders`. */
  readEntries?: (added: AddedEntries, sources: LogSources) => EntriesReading | Promise<EntriesReading>;
  /** In the order in which agents have them. */
  tools?: readonly SystemTool<ToolServices>[];
  modelCallPart?: (sources: PartSources) => ModelCallPart;
  /** The feature's periodic work, in every worker, which does not fail if Temporal is unavailable. */
  sweep?: FeatureSweep;
  /** The periodic work that must follow the archiving of ended turns, and precede the deletion of sessions. */
  sweepAfterTurns?: FeatureSweep;
}

/** If it fails, the whole sweep is repeated soon. `began` is the start of housekeeping in this process. */
type FeatureSweep = (sources: SweepSources, when: { now: Date; began: Date; stop: AbortSignal }) => Promise<void>;

type ColumnsOfTurn = ReturnType<CatalogFeatures['columnsOf']>;
type ReadStart = Parameters<LogReading['ofStart']>[0];
type AddedEntries = Parameters<LogReading['ofEntries']>[0];

/** The services with which logs are read. */
export interface LogSources {
  catalog: Pick<KernelCatalog, 'sessions'>;
  logs: TurnLogReader;
  runStates: RunStates;
}

/** The services with which tools are routed or executed. */
export type ToolServices = SubAgentSources & SearchSources & { skills: Pick<Skills, 'read'> };

/** The services for the parts of model calls. */
export interface PartSources extends CodePartOptions {
  budgets: Pick<SharedBudgets, 'metered'>;
  files: FileTexts;
  signIns: Pick<SignIns, 'request' | 'isDeclined'>;
  skills: Pick<Skills, 'list'>;
}

/** The services for sweeps. */
export interface SweepSources {
  catalog: Catalog;
  client: Client;
  taskQueue: string;
  delegator: Pick<Delegator, 'settleAll'>;
  deliverer: Pick<WebhookDeliverer, 'wake'>;
  sessionQueue: Pick<SessionQueue, 'sweep'>;
  log: Logger;
}
