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

/** One process on the Temporal that is usually embedded in it; here the baseline's workflows share that Temporal. */
export async function startAllInOne(setting: Setting): Promise<Deployment> {
  return startOn(await startEmbedded(setting), 'all-in-one', setting);
}

/** One of two processes. */
interface Member {
  /** Its settings beside the common ones. */
  env: Record<string, string>;
  /** The folder of the code that it executes; by default this tree. */
  tree?: string;
}

/** Two processes on one Temporal. Their names are their task queues. */
export async function startPair<K extends string>(
  setting: Setting,
  members: Record<K, Member>,
): Promise<Record<K, Deployment>> {
  const temporal = await startEmbedded(setting);
  const deployments: [string, Deployment][] = [];
  for (const [name, { env, tree }] of Object.entries<Member>(members)) {
    deployments.push([name, await startOn(temporal, name, { ...setting, env: { ...setting.env, ...env } }, tree)]);
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
  tree?: string,
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
  const server = await startEverturn('start', 'Everturn listens', settings, cleanup, tree);
  return { url: `http://127.0.0.1:${port}`, temporal, processes: [server] };
}
