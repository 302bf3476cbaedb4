import type { Client } from '@temporalio/client';
import type { Keyring } from '../../auth/api-keys.ts';
import type { TokenIssuer } from '../../auth/token-verifier.ts';
import type { TriedPart } from '../../agents/try-agent.ts';
import type { Config } from '../../config.ts';
import type { SharedBudgets } from '../../features/budgets/shared-budgets.ts';
import type { Catalog } from '../../features/catalog.ts';
import type { SessionIndex } from '../../features/session-stream/session-index.ts';
import type { SessionWatches } from '../../features/session-stream/session-watches.ts';
import type { ActionFeed } from '../../features/inbox/action-feed.ts';
import type { TurnTailPool } from '../../live/turn-tail.ts';
import type { SessionQueue } from '../../features/agent-sessions/session-queue.ts';
import type { Engine } from '../../engine/engine.ts';
import type { McpPool } from '../../mcp/pool.ts';
import type { McpRegistry } from '../../mcp/registry.ts';
import type { SignIns } from '../../features/sign-in/sign-ins.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import type { CheckedServer } from '../../tools/check-servers.ts';
import type { ToolsetLoader } from '../../tools/toolset-loader.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { Tracing } from '../../telemetry/tracing.ts';
import type { Redis } from '../../lib/redis.ts';
import type { ConnectionLimit } from './connection-limit.ts';
import type { Limits } from '../../engine/limits.ts';
import type { StorageQuota } from '../../engine/storage-quota.ts';
import type { StreamLimits } from './stream-limits.ts';

/** Something that does not work. */
export interface Finding {
  problem: string;
  /** The error that the check met; it may name hosts and folders. */
  reason: string;
  since: string;
}

export interface Findings {
  /** Failures because of which requests cannot be carried out; empty if there are none. */
  problems: Finding[];
  /** Failures that impair requests, but do not prevent them. */
  warnings: Finding[];
}

/** Checks whether the process can do its work. */
export interface ReadinessCheck {
  check: () => Promise<Findings>;
}

/** All metrics of a process, in the format of Prometheus. */
export type Scrape = () => Promise<{ contentType: string; text: string }>;

/** The services of the routes; one object per server. */
export interface ApiContext extends Engine {
  config: Engine['config'] &
    Pick<Config, 'trustedProxies' | 'temporal' | 'defaultModel' | 'runRetentionDays' | 'subjectBudget'>;
  catalog: Catalog;
  budgets: SharedBudgets;
  sessionIndex: SessionIndex;
  client: Client;
  keyring: Keyring;
  /** The issuer whose tokens are accepted, if one is configured. */
  issuer: TokenIssuer | undefined;
  tails: TurnTailPool;
  sessionQueue: SessionQueue;
  storageQuota: StorageQuota;
  signIns: SignIns;
  registry: Pick<McpRegistry, 'environmentServer'>;
  toolPool: Pick<McpPool, 'endGrant'>;
  /** Connects to the registered MCP servers, with the sign-ins of a subject. */
  checkServers: (subjectId: string, signal: AbortSignal) => Promise<CheckedServer[]>;
  /** Loads the tools of agents, with the sign-ins of the session's owner. */
  toolsets: Pick<ToolsetLoader, 'load'>;
  /** Tries the models and MCP servers of an agent, with the sign-ins of a subject. */
  tryAgent: (spec: AgentSpec, subjectId: string, signal: AbortSignal) => Promise<TriedPart[]>;
  sessionWatches: SessionWatches;
  actionFeed: ActionFeed;
  /** Whether URLs in requests may currently lead to private addresses. */
  allowPrivateUrls: () => boolean;
  connectionLimit: ConnectionLimit;
  limits: () => Limits;
  streamLimits: StreamLimits;
  redis: Redis | undefined;
  readiness: ReadinessCheck;
  metrics: Metrics;
  scrape: Scrape;
  tracing: Tracing | undefined;
}
