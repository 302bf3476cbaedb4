import type { Keyring } from '../../auth/api-keys.ts';
import type { TokenIssuer } from '../../auth/token-verifier.ts';
import type { Config } from '../../config.ts';
import type { TurnTailPool } from '../../live/turn-tail.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { Tracing } from '../../telemetry/tracing.ts';
import type { Scrape } from '../../server/operations.ts';
import type { Readiness } from '../../server/readiness.ts';
import type { Redis } from '../../lib/redis.ts';
import type { ConnectionLimit } from './connection-limit.ts';
import type { Limits } from '../../engine/limits.ts';
import type { StreamLimits } from './stream-limits.ts';

/** What the routes work with; one object per server. */
export interface ApiContext extends Engine {
  config: Engine['config'] & Pick<Config, 'trustedProxies' | 'temporal'>;
  keyring: Keyring;
  issuer: TokenIssuer | undefined;
  tails: TurnTailPool;
  /** Whether URLs from outside may lead to private addresses now. */
  allowPrivateUrls: () => boolean;
  connectionLimit: ConnectionLimit;
  limits: () => Limits;
  streamLimits: StreamLimits;
  redis: Redis | undefined;
  readiness: Readiness;
  metrics: Metrics;
  scrape: Scrape;
  tracing: Tracing | undefined;
}
