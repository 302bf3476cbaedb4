import { mkdtemp, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { findDevServers } from '../../src/temporal-server/dev-server.ts';
import { databaseFileIn } from '../../src/temporal-server/embedded-server.ts';
import { provisionTemporal, type ProvisionedTemporal } from '../../src/temporal-server/provision.ts';
import type { DynamicConfig } from '../../src/temporal-server/dynamic-config.ts';
import { isAlive } from './is-alive.ts';

/** A Temporal server for one test file, which may stop it or give it settings of its own. */
export interface OwnTemporal extends ProvisionedTemporal {
  address: string;
  /** The folder of its database. */
  dataDir: string;
}

export async function startOwnTemporal(dynamicConfig: DynamicConfig = {}, given?: string): Promise<OwnTemporal> {
  const dataDir = given ?? (await mkdtemp(path.join(tmpdir(), 'everturn-temporal-')));
  const temporal = await provisionTemporal({
    dataDir,
    cacheDir: path.join(process.env['XDG_CACHE_HOME'] ?? path.join(homedir(), '.cache'), 'everturn'),
    external: undefined,
    namespace: 'everturn',
    log: pino({ level: 'error' }, pino.destination(2)),
    dynamicConfig,
  });
  // It outlives this process, also when a set-up fails and nothing comes to stop it.
  const servers = await findDevServers(await databaseFileIn(dataDir));
  const end = (): void => {
    for (const { pid } of servers) if (isAlive(pid)) process.kill(pid, 'SIGKILL');
  };
  process.once('exit', end);
  return {
    ...temporal,
    address: temporal.connectionOptions.address ?? '',
    dataDir,
    stop: async () => {
      process.off('exit', end);
      await temporal.stop();
      if (!given) await rm(dataDir, { recursive: true, force: true });
    },
  };
}
