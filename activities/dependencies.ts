import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { Toolsets } from '../src/tools/toolset-loader.ts';
import type { BlobStore } from '../src/blobs/blob-store.ts';
import type { Catalog } from '../src/catalog/catalog.ts';
import type { Config } from '../src/config.ts';
import type { LiveBus } from '../src/live/bus.ts';
import type { HeadStarts } from '../src/speculation/speculative-calls.ts';
import type { Conversations } from '../src/engine/conversations.ts';
import type { TurnIndex } from '../src/engine/turn-index.ts';
import type { TurnLogs } from '../src/engine/turn-log-reader.ts';
import type { Metrics } from '../src/telemetry/metrics.ts';
import type { Models } from '../src/models/providers.ts';
import type { McpPool } from '../src/mcp/pool.ts';

/** What the activities work with; one object per worker. */
export interface Dependencies {
  config: Pick<Config, 'model' | 'tool'>;
  catalog: Catalog;
  blobs: BlobStore;
  bus: LiveBus;
  headStarts: Pick<HeadStarts, 'claim' | 'forgo' | 'withdraw'>;
  models: Models;
  toolsets: Toolsets;
  toolPool: McpPool;
  logs: TurnLogs;
  turnIndex: TurnIndex;
  conversations: Conversations;
  client: Client;
  log: Logger;
  metrics: Metrics;
  /** Aborted when the worker is asked to stop: what can move to another worker moves at once. */
  draining: AbortSignal;
}
