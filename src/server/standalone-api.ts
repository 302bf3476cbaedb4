import { readAgentFiles, registerAgents } from './agent-files.ts';
import { listenForApi, startApi } from './api.ts';
import { requireKeysIfExposed, warnOfClientKey } from './require-keys.ts';
import type { RunningAllInOne } from './all-in-one.ts';
import { openStandalone, type StandaloneOptions } from './standalone.ts';
import { checkPollers } from '../temporal/task-queue.ts';

/** Starts an API whose workers run in other processes. */
export async function startStandaloneApi({ config, log, tracing }: StandaloneOptions): Promise<RunningAllInOne> {
  await using cleanup = new AsyncDisposableStack();
  const ports = await listenForApi(config, log, cleanup);
  await requireKeysIfExposed(config, log);
  const agents = await readAgentFiles(config.agentsDir);
  const { services, model } = await openStandalone({ config, log, tracing, hasWorker: false }, cleanup);
  warnOfClientKey(services);
  await registerAgents(services, agents);
  const { client, keyring } = services;
  const stopApi = startApi(services, ports, {
    dependency: 'worker',
    problem: 'no worker is running',
    run: () => checkPollers(client, config.temporal.taskQueue),
  });
  const stopped = Promise.withResolvers<void>();
  cleanup.defer(() => stopped.resolve());
  cleanup.defer(stopApi);
  const names = keyring.isKeyless ? undefined : await keyring.names();
  const running = cleanup.move();
  return { url: ports.api.url, model, names, finished: stopped.promise, stop: () => running.disposeAsync() };
}
