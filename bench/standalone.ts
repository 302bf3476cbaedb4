import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { startTemporalOnPostgres } from '../deploy/temporal/start.ts';
import { loadConfig } from '../src/config.ts';
import { freePort } from '../src/lib/processes.ts';
import { createLogger } from '../src/telemetry/logger.ts';
import { Postgres } from '../test/support/postgres.ts';
import { TestRedis } from '../test/support/redis.ts';
import { createDatabase } from '../test/support/sql.ts';
import { freeTemporalPort } from '../test/support/temporal-ports.ts';
import type { Deployment } from './deployment.ts';
import { startEverturn } from './everturn-process.ts';
import type { Setting } from './setting.ts';

/** An API process and a worker, with catalog and Temporal on PostgreSQL, and Redis. */
export async function startStandalone({ folder, env, cleanup }: Setting): Promise<Deployment> {
  const dataDir = path.join(folder, 'standalone');
  await mkdir(dataDir);
  const postgres = await Postgres.start({ isDurable: true });
  cleanup.push(() => postgres.stop());
  const redis = await TestRedis.start();
  cleanup.push(() => redis.down());
  const temporal = await startTemporalOnPostgres({
    postgresUrl: postgres.url,
    folder: path.join(dataDir, 'temporal'),
    cacheDir: loadConfig({}).cacheDir,
    log: createLogger({ logLevel: 'warn' }),
    port: await freeTemporalPort(),
    output: 'ignore',
  });
  cleanup.push(() => temporal.stop());
  const { address, namespace } = temporal;
  const port = String(await freePort());
  const settings = {
    ...env,
    EVERTURN_DATA: dataDir,
    EVERTURN_PORT: port,
    TEMPORAL_ADDRESS: address,
    TEMPORAL_NAMESPACE: namespace,
    DATABASE_URL: await createDatabase(postgres.url),
    REDIS_URL: redis.url,
  };
  const worker = await startEverturn('worker', 'polls the task queue', settings, cleanup);
  const api = await startEverturn('api', 'API listens', settings, cleanup);
  return {
    url: `http://127.0.0.1:${port}`,
    temporal: { connectionOptions: { address }, namespace },
    processes: [api, worker],
  };
}
