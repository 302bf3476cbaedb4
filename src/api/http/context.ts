import type { Logger } from 'pino';
import type { AgentValidator } from '../../agents/validate-agent.ts';
import type { Keyring } from '../../auth/api-keys.ts';
import type { TokenIssuer } from '../../auth/token-verifier.ts';
import type { BlobStore } from '../../blobs/blob-store.ts';
import type { Catalog } from '../../catalog/catalog.ts';
import type { Config } from '../../config.ts';
import type { TurnTailPool } from '../../live/turn-tail.ts';
import type { TurnIndex } from '../../engine/turn-index.ts';
import type { TurnLogReader } from '../../engine/turn-log-reader.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { Tracing } from '../../telemetry/tracing.ts';
import type { Redis } from '../../lib/redis.ts';
import type { ConnectionLimit } from './connection-limit.ts';
import type { Limits } from '../../engine/limits.ts';
import type { SessionCommands } from '../../engine/session-commands.ts';
import type { StreamLimits } from './stream-limits.ts';
import type { TurnSpeculations } from '../../speculation/turn-speculation.ts';
import type { TurnLimits } from '../../engine/turn-limits.ts';

/** Something that does not work. */
export interface Finding {
  problem: string;
  /** The error that the check met; it may name hosts and folders. */
  reason: string;
  since: string;
}

export interface Findings {
  /** Why requests cannot be answered as they should; empty if they can. */
  problems: Finding[];
  /** Failures without which requests are answered, if less well. */
  warnings: Finding[];
}

/** Checks whether the process can do its work. */
export interface ReadinessCheck {
  check: () => Promise<Findings>;
}

/** All metrics of a process, in the format of Prometheus. */
export type Scrape = () => Promise<{ contentType: string; text: string }>;

/** The services of the routes; one object per server. */
export interface ApiContext {
  config: Pick<Config, 'turnSeconds' | 'tool' | 'trustedProxies' | 'temporal'>;
  keyring: Keyring;
  issuer: TokenIssuer | undefined;
  catalog: Catalog;
  blobs: BlobStore;
  logs: TurnLogReader;
  turnIndex: TurnIndex;
  tails: TurnTailPool;
  commands: SessionCommands;
  /** Whether URLs in requests may currently lead to private addresses. */
  allowPrivateUrls: () => boolean;
  connectionLimit: ConnectionLimit;
  limits: () => Limits;
  turnLimits: TurnLimits;
  streamLimits: StreamLimits;
  redis: Redis | undefined;
  speculativeCalls: TurnSpeculations;
  agentCheck: AgentValidator;
  readiness: ReadinessCheck;
  log: Logger;
  metrics: Metrics;
  scrape: Scrape;
  tracing: Tracing | undefined;
}
