import type { Client } from '@temporalio/client';
import type { ModelCallSources } from '../src/agents/prepare-model-call.ts';
import type { LogReading } from '../src/catalog/log-reader.ts';
import type { Config } from '../src/config.ts';
import type { Conversations } from '../src/engine/conversations.ts';
import type { Engine } from '../src/engine/engine.ts';
import type { Catalog } from '../src/features/catalog.ts';
import type { Delegator } from '../src/features/delegation/delegator.ts';
import type { ScheduledSessions } from '../src/features/schedules/scheduled-runs.ts';
import type { SignIns } from '../src/features/sign-in/sign-ins.ts';
import type { SpeculativeCalls } from '../src/features/speculation/speculative-calls.ts';
import type { StepsAhead } from '../src/features/speculation/steps-ahead.ts';
import type { LiveBus } from '../src/live/bus.ts';
import type { ModelProviders } from '../src/models/providers.ts';
import type { ServerContacts } from '../src/models/server-contacts.ts';
import type { Metrics } from '../src/telemetry/metrics.ts';
import type { ToolCallSources } from '../src/tools/run-tool-call.ts';

/** The services that activities use; one object per worker. */
export interface Dependencies
  extends ModelCallSources, ToolCallSources, Pick<Engine, 'losses' | 'logs' | 'turnIndex' | 'log'> {
  config: Pick<Config, 'model' | 'tool' | 'sessionIdleSeconds'>;
  catalog: Catalog;
  blobs: Engine['blobs'];
  bus: LiveBus;
  speculativeCalls: Pick<SpeculativeCalls, 'claim' | 'skip'>;
  stepsAhead: StepsAhead;
  models: ModelProviders;
  serverContacts: Pick<ServerContacts, 'hasResponded'>;
  signIns: Pick<SignIns, 'request' | 'isDeclined'>;
  logReading: LogReading;
  conversations: Conversations;
  delegator: Delegator;
  scheduledSessions: ScheduledSessions;
  client: Client;
  /** The task queue of all workers. */
  taskQueue: string;
  metrics: Metrics;
  /** The task queue of this process alone. `open` returns its name once a worker polls it. */
  ownQueue: { open: () => Promise<string> };
  /** Aborted when the worker drains: activities that can move to another worker do so immediately. */
  draining: AbortSignal;
}
