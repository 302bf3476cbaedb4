import { Client, Connection } from '@temporalio/client';
import { NativeConnection } from '@temporalio/worker';
import { createLogger } from '../src/telemetry/logger.ts';
import { installTemporalRuntime } from '../src/telemetry/temporal-runtime.ts';
import { Baseline } from './baseline.ts';
import { BenchClient } from './bench-client.ts';
import type { Deployment } from './deployment.ts';
import type { Setting } from './setting.ts';

/** What the measurements use: Everturn, and the baseline on the same Temporal. */
export interface Bench {
  setting: Setting;
  deployment: Deployment;
  client: BenchClient;
  temporal: Client;
  baseline: Baseline;
}

/** Installed only if the baseline's workflows run: it lasts until the last worker has ended. */
let runtimeInstalled: Promise<void> | undefined;

export async function startBench(setting: Setting, start: (setting: Setting) => Promise<Deployment>): Promise<Bench> {
  runtimeInstalled ??= installTemporalRuntime(createLogger({ logLevel: 'warn' }));
  await runtimeInstalled;
  const deployment = await start(setting);
  const temporal = await connect(deployment, setting);
  const native = await NativeConnection.connect(deployment.temporal.connectionOptions);
  setting.cleanup.push(() => native.close());
  const baseline = await Baseline.start(temporal, native, deployment.temporal.namespace);
  setting.cleanup.push(() => baseline.stop());

  setting.say('warming up');
  await baseline.run(40);
  return { setting, deployment, client: await warmClient(deployment, temporal), temporal, baseline };
}

/** A client of a deployment that has run steps of each kind. */
export async function warmClient({ url }: Deployment, temporal: Client): Promise<BenchClient> {
  const client = new BenchClient(url, temporal);
  await client.putAgents();
  await client.timeOfSteps(20);
  await client.timeOfSteps(20, { agent: 'noting' });
  await client.timeOfSteps(20, { agent: 'stdio' });
  await client.timeOfSteps(20, { reader: true });
  return client;
}

export async function connect({ temporal }: Deployment, { cleanup }: Setting): Promise<Client> {
  const connection = await Connection.connect(temporal.connectionOptions);
  cleanup.push(() => connection.close());
  return new Client({ connection, namespace: temporal.namespace });
}
