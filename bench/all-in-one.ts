import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { loadConfig } from '../src/config.ts';
import { freePort } from '../src/lib/processes.ts';
import { createLogger } from '../src/telemetry/logger.ts';
import { provisionTemporal, type ProvisionedTemporal } from '../src/temporal-server/provision.ts';
import { cliSettings } from '../test/support/temporal-cli.ts';
import type { Deployment } from './deployment.ts';
import { startEverturn } from './everturn-process.ts';
import type { Setting } from './setting.ts';

/** One process, on the Temporal that is embedded in it otherwise and is shared with the baseline's workflows here. */
export async function startAllInOne(setting: Setting): Promise<Deployment> {
  return startOn(await startEmbedded(setting), 'all-in-one', setting);
}

/** Two processes on one Temporal, which have these settings and the common ones. Their names are their task queues. */
export async function startPair<K extends string>(
  setting: Setting,
  settings: Record<K, Record<string, string>>,
): Promise<Record<K, Deployment>> {
  const temporal = await startEmbedded(setting);
  const deployments: [string, Deployment][] = [];
  for (const [name, env] of Object.entries<Record<string, string>>(settings)) {
    deployments.push([name, await startOn(temporal, name, { ...setting, env: { ...setting.env, ...env } })]);
  }
  return Object.fromEntries(deployments) as Record<K, Deployment>;
}

async function startEmbedded({ folder, cleanup }: Setting): Promise<ProvisionedTemporal> {
  const { temporal: settings } = loadConfig({});
  const log = createLogger({ logLevel: 'warn' });
  const temporal = await provisionTemporal({ dataDir: folder, log, ...settings, ...cliSettings() });
  cleanup.push(() => temporal.stop());
  return temporal;
}

/** A process with its own folder and task queue. */
async function startOn(
  temporal: ProvisionedTemporal,
  name: string,
  { folder, env, cleanup }: Setting,
): Promise<Deployment> {
  const dataDir = path.join(folder, name);
  await mkdir(dataDir);
  const { connectionOptions, namespace } = temporal;
  const port = String(await freePort());
  const settings = {
    ...env,
    EVERTURN_DATA: dataDir,
    EVERTURN_PORT: port,
    EVERTURN_TASK_QUEUE: name,
    TEMPORAL_ADDRESS: connectionOptions.address ?? '',
    TEMPORAL_NAMESPACE: namespace,
    // The setting of an embedded Temporal, which this one is.
    EVERTURN_SQLITE_SYNC: 'normal',
  };
  const server = await startEverturn('start', 'Everturn listens', settings, cleanup);
  return { url: `http://127.0.0.1:${port}`, temporal, processes: [server] };
}
