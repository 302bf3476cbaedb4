import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { ToolsetLoader } from '../src/tools/toolset-loader.ts';
import type { BlobStore } from '../src/blobs/blob-store.ts';
import type { Catalog } from '../src/catalog/catalog.ts';
import type { Config } from '../src/config.ts';
import type { LiveBus } from '../src/live/bus.ts';
import type { SpeculativeCalls } from '../src/speculation/speculative-calls.ts';
import type { StepsAhead } from '../src/speculation/steps-ahead.ts';
import type { Delegator } from '../src/delegation/delegator.ts';
import type { Conversations } from '../src/engine/conversations.ts';
import type { ScheduledSessions } from '../src/engine/scheduled-runs.ts';
import type { SharedBudgets } from '../src/engine/shared-budgets.ts';
import type { RunStates } from '../src/engine/archive-turn.ts';
import type { TurnIndex } from '../src/engine/turn-index.ts';
import type { TurnLogReader } from '../src/engine/turn-log-reader.ts';
import type { OnceLog } from '../src/lib/once-log.ts';
import type { Metrics } from '../src/telemetry/metrics.ts';
import type { ModelProviders } from '../src/models/providers.ts';
import type { ServerContacts } from '../src/models/server-contacts.ts';
import type { FileTexts } from '../src/files/file-texts.ts';
import type { Skills } from '../src/skills/skills.ts';
import type { SignIns } from '../src/mcp/sign-ins.ts';
import type { ToolKinds } from '../src/tools/kinds.ts';

/** The services that activities use; one object per worker. */
export interface Dependencies {
  config: Pick<Config, 'model' | 'tool' | 'sessionIdleSeconds'>;
  catalog: Catalog;
  blobs: BlobStore;
  bus: LiveBus;
  speculativeCalls: Pick<SpeculativeCalls, 'claim' | 'forgo'>;
  stepsAhead: StepsAhead;
  models: ModelProviders;
  serverContacts: Pick<ServerContacts, 'hasAnswered'>;
  toolsets: ToolsetLoader;
  toolKinds: ToolKinds;
  skills: Skills;
  files: FileTexts;
  budgets: SharedBudgets;
  signIns: Pick<SignIns, 'request' | 'isDeclined'>;
  logs: TurnLogReader;
  losses: OnceLog;
  turnIndex: TurnIndex;
  runStates: RunStates;
  conversations: Conversations;
  delegator: Delegator;
  scheduledSessions: ScheduledSessions;
  client: Client;
  /** The task queue of all workers. */
  taskQueue: string;
  log: Logger;
  metrics: Metrics;
  /** The task queue of this process alone. `open` returns its name once a worker polls it. */
  ownQueue: { open: () => Promise<string> };
  /** Aborted when the worker drains: activities that can move to another worker do so immediately. */
  draining: AbortSignal;
}
