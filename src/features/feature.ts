import type { ModelCallPart } from '../agents/model-call-part.ts';
import type { SubAgentSources } from '../agents/start-sub-agent.ts';
import type { KernelCatalog } from '../catalog/catalog.ts';
import type { CatalogFeatures, EntriesReading, LogReader, LogReading, StartReading } from '../catalog/log-reader.ts';
import type { Cipher } from '../encryption/cipher.ts';
import type { TurnLogReader } from '../engine/turn-log-reader.ts';
import type { SystemTool } from '../tools/system-tool.ts';
import type { SharedBudgets } from './budgets/shared-budgets.ts';
import type { CodePartOptions } from './code/code-part.ts';
import type { SearchSources } from './code/tools/search-code.ts';
import type { FileTexts } from './files/file-texts.ts';
import type { RunStates } from './run-support/run-summaries.ts';
import type { SignIns } from './sign-in/sign-ins.ts';
import type { Skills } from './skills/skills.ts';

/**
 * What a feature adds to logs, tools and model calls. Each is a folder with its `feature.ts`, if it adds any of them, and
 * a line in `FEATURES`, in the order of which they are called.
 */
export interface Feature extends Partial<Pick<CatalogFeatures, 'tablesOfSessions' | 'tablesOfTurns'>> {
  logReaders?: (cipher: Cipher) => LogReader[];
  /** Its columns in the row of a turn that is accepted. */
  columnsOf?: (turn: Parameters<CatalogFeatures['columnsOf']>[0], cipher: Cipher) => ColumnsOfTurn;
  /** What its readers need to know of the start of a turn. */
  readStart?: (start: ReadStart, sources: LogSources) => StartReading | Promise<StartReading>;
  /** What they need to know of entries of a log. */
  readEntries?: (added: AddedEntries, sources: LogSources) => EntriesReading | Promise<EntriesReading>;
  /** Agents have them in this order. */
  tools?: readonly SystemTool<ToolServices>[];
  modelCallPart?: (sources: PartSources) => ModelCallPart;
}

type ColumnsOfTurn = ReturnType<CatalogFeatures['columnsOf']>;
type ReadStart = Parameters<LogReading['ofStart']>[0];
type AddedEntries = Parameters<LogReading['ofEntries']>[0];

/** What logs are read with. */
export interface LogSources {
  catalog: Pick<KernelCatalog, 'sessions'>;
  logs: TurnLogReader;
  runStates: RunStates;
}

/** What tools are routed or run with. */
export type ToolServices = SubAgentSources & SearchSources & { skills: Pick<Skills, 'read'> };

/** What the parts of model calls work with. */
export interface PartSources extends CodePartOptions {
  budgets: Pick<SharedBudgets, 'metered'>;
  files: FileTexts;
  signIns: Pick<SignIns, 'request' | 'isDeclined'>;
  skills: Pick<Skills, 'list'>;
}
