import { isDeepStrictEqual } from 'node:util';
import type { Logger } from 'pino';
import { readAgentFiles, registerAgents } from './agent-files.ts';
import { listenForApi, startApi } from './api.ts';
import { requireKeysIfExposed, warnOfClientKey } from './require-keys.ts';
import { ConfigError, isLoopback, type Config } from '../config.ts';
import { DEMO, demoAgent, warnOfDemoModel } from '../demo/demo-agent.ts';
import { startDemoMcpServer } from '../demo/demo-mcp-server.ts';
import { startDemoModel } from '../demo/demo-model.ts';
import { announceDemo } from './demo-address.ts';
import { NEVER_ABORTED } from '../lib/abort.ts';
import { errorMessage } from '../lib/errors.ts';
import { lockDataDir } from '../lib/data-dir-lock.ts';
import { makeFolder } from '../lib/make-folder.ts';
import type { LiveBus } from '../live/bus.ts';
import { listenForOutputs } from '../live/output-listener.ts';
import { chatAccess, modelAccess, type ModelAccess } from '../models/open-providers.ts';
import { refuseOldTurns } from './old-turns.ts';
import { KernelHostProcess } from './kernel-host-process.ts';
import { openServices, type Services } from './services.ts';
import type { Tracing } from '../telemetry/tracing.ts';
import { endEmbeddedTemporal } from '../temporal-server/embedded-server.ts';
import { provisionTemporal, type ProvisionedTemporal } from '../temporal-server/provision.ts';
import { workflowBundle } from '../temporal/workflow-bundle.ts';
import { loadMcpRegistry, type McpRegistry } from '../mcp/registry.ts';
import { startWorker } from './worker.ts';

/** A running server with an API. */
export interface RunningAllInOne {
  url: string;
  /** A description of the model provider, for display. */
  model: string;
  /** The names that have a key; undefined if no key is needed. */
  names: string[] | undefined;
  /** Rejects if the server fails; resolves when it has stopped. */
  finished: Promise<void>;
  stop: () => Promise<void>;
}

/**
 * Starts everything in this process: Temporal unless one is configured, the worker, the API and the demo. The port and
 * the data folder come first, since the rest may take minutes. Gives up when `signal` is aborted, and stops what it has
 * started.
 */
export async function startAllInOne(
  config: Config,
  log: Logger,
  given: {
    temporal?: ProvisionedTemporal;
    bus?: LiveBus;
    tracing?: Tracing | undefined;
    signal?: AbortSignal;
    endOldTurns?: boolean | undefined;
    /** From which the configuration was read, for the kernel host. Default: that of this process. */
    env?: NodeJS.ProcessEnv;
  } = {},
): Promise<RunningAllInOne> {
  await using cleanup = new AsyncDisposableStack();
  const { signal = NEVER_ABORTED } = given;
  const ports = await listenForApi(config, log, cleanup);
  await makeFolder(config.dataDir, 'EVERTURN_DATA');
  if (!given.temporal && !config.temporal.external) {
    cleanup.defer(lockDataDir(config.dataDir));
    // Also ends the server of a killed Everturn, if this start fails or is given up before it has adopted that.
    cleanup.defer(() => endEmbeddedTemporal(config.dataDir));
  }
  await requireKeysIfExposed(config, log);
  const registry = await loadMcpRegistry(config.mcpServersFile);
  const agents = await readAgentFiles(config.agentsDir);
  const bundling = workflowBundle(config.cacheDir, { encodesFailures: config.encryptionKeys.length > 0 });
  bundling.catch(() => undefined); // awaited below, unless another step fails first
  const temporal = given.temporal ?? (await provisionTemporal({ ...config, ...config.temporal, log, signal }));
  cleanup.defer(() => temporal.stop());
  signal.throwIfAborted();

  const realModel = await modelAccess(config);
  const model = realModel ?? (await demoAccess(cleanup));

  const kernelHost = new KernelHostProcess({ config, env: given.env ?? process.env, temporal, log });
  cleanup.defer(() => kernelHost.stop());
  await kernelHost.adopt();
  const services = await openServices({
    config,
    ensureKernelHost: () => kernelHost.ensure(),
    publicUrl: config.publicUrl ?? (isLoopback(config.host) ? ports.api.url : undefined),
    log,
    temporal,
    registry,
    model,
    hasWorker: true,
    bus: given.bus,
    tracing: given.tracing,
  });
  cleanup.defer(() => services.close());
  if (config.kernels.perHost !== 0 && !services.redis) await listenForHost(services, cleanup);
  await refuseOldTurns(services, given);
  // Calls in the sandboxes may run before any model is called.
  if (config.kernels.perHost !== 0 && (await services.catalog.sandboxes.isAny())) kernelHost.ensure();
  warnOfClientKey(services);
  if (services.keyring.isKeyless) {
    await addDemo({ ...services, registry }, { withAgent: !agents.has(DEMO) }, cleanup);
  } else {
    if (!realModel) throw new ConfigError(NO_DEMO_MODEL);
    await announceDemo(config.dataDir, undefined);
    await removeDemoAgent(services);
  }
  await registerAgents(services, agents);
  const worker = await startWorker(services, { temporal, workflowBundle: await bundling });
  cleanup.defer(() => worker.stop());
  cleanup.defer(startApi(services, ports, worker.check));
  const names = services.keyring.isKeyless ? undefined : await services.keyring.names();
  if (names === undefined) void warnOfDemoModel(services);
  const running = cleanup.move();
  return {
    url: ports.api.url,
    model: model.name,
    names,
    finished: worker.finished,
    stop: () => running.disposeAsync(),
  };
}

/** Without the socket, readers get the output of code with its result. */
async function listenForHost({ config, bus, log }: Services, cleanup: AsyncDisposableStack): Promise<void> {
  try {
    cleanup.defer(await listenForOutputs({ dataDir: config.dataDir, bus, log }));
  } catch (error) {
    log.warn({ err: errorMessage(error) }, 'the output of code cannot be streamed: readers get it with the result');
  }
}

const NO_DEMO_MODEL =
  'the demo model is only for a server without API keys: set OPENAI_API_KEY, or OPENAI_BASE_URL or EVERTURN_MODEL_PROVIDERS for other ' +
  'providers';

/** Only for servers without keys: the demo keeps one list of notes for all callers. */
async function addDemo(
  { registry, keyring, catalog, config }: Services & { registry: McpRegistry },
  { withAgent }: { withAgent: boolean },
  cleanup: AsyncDisposableStack,
): Promise<void> {
  const server = await startDemoMcpServer({ isKeyless: () => keyring.isKeyless });
  cleanup.defer(() => server.stop());
  registry.add(DEMO, { url: server.url });
  await announceDemo(config.dataDir, server.url);
  if (withAgent) await catalog.agents.put(DEMO, demoAgent(config.demoModel), new Date().toISOString());
}

/** Deletes the demo agent that an earlier start without keys has registered, but no other agent of that name. */
async function removeDemoAgent({ catalog }: Services): Promise<void> {
  const agent = await catalog.agents.get(DEMO);
  if (agent && isDeepStrictEqual(agent.spec, demoAgent(agent.spec.model.name))) await catalog.agents.delete(DEMO);
}

async function demoAccess(cleanup: AsyncDisposableStack): Promise<ModelAccess> {
  const demo = await startDemoModel();
  cleanup.defer(() => demo.stop());
  return chatAccess('the demo model, a script (set OPENAI_API_KEY for a real one)', demo.url);
}
