import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { provisionTemporal, type ProvisionedTemporal } from '../../src/temporal-server/provision.ts';
import type { DynamicConfig } from '../../src/temporal-server/dynamic-config.ts';
import { killUsersAtEnd } from './reaper.ts';
import { cliSettings } from './temporal-cli.ts';

/** A Temporal server for one test file, which may stop it or give it its own settings. */
export interface OwnTemporal extends ProvisionedTemporal {
  address: string;
  /** The folder of its database. */
  dataDir: string;
}

/**
 * Lets Temporal delete runs at once. It deletes a run only after it has recorded the progress of its queues past the
 * run's close, by default twice a minute.
 */
export const DELETES_RUNS_AT_ONCE: DynamicConfig = {
  'history.transferProcessorUpdateAckInterval': '200ms',
  'history.visibilityProcessorUpdateAckInterval': '200ms',
};

export async function startOwnTemporal(dynamicConfig: DynamicConfig = {}, given?: string): Promise<OwnTemporal> {
  const dataDir = given ?? (await mkdtemp(path.join(tmpdir(), 'everturn-temporal-')));
  // The server outlives this process.
  killUsersAtEnd(dataDir);
  const temporal = await provisionTemporal({
    dataDir,
    ...cliSettings(),
    external: undefined,
    namespace: 'everturn',
    log: pino({ level: 'error' }, pino.destination(2)),
    dynamicConfig,
  });
  return {
    ...temporal,
    address: temporal.connectionOptions.address ?? '',
    dataDir,
    stop: async () => {
      await temporal.stop();
      if (!given) await rm(dataDir, { recursive: true, force: true });
    },
  };
}
