import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { NativeConnection, Worker } from '@temporalio/worker';
import type { Logger } from 'pino';
import { createCallsInSandbox } from '../../activities/call-in-sandbox.ts';
import { createOpenSandbox } from '../../activities/open-sandbox.ts';
import { Keyring } from '../auth/api-keys.ts';
import { ConfigError, type Config } from '../config.ts';
import { kernelQueue } from '../core/temporal-names.ts';
import { Conversations } from '../engine/conversations.ts';
import { cancelAtDeadline } from '../engine/turn-deadline.ts';
import { limitsInForce } from '../engine/limits.ts';
import type { AskingCode } from '../features/code/host/cells.ts';
import { CodeCalls } from '../features/code/host/code-calls.ts';
import { SandboxHost, type KernelEnvironment } from '../features/code/host/sandbox-host.ts';
import { probeWalls, type WantedWall } from '../features/code/kernel/probe-walls.ts';
import { HostNetwork } from '../features/code/kernel/sandbox-network.ts';
import { KernelPython } from '../features/code/python/kernel-python.ts';
import { Skills } from '../features/skills/skills.ts';
import { availableBytes } from '../lib/available-bytes.ts';
import { errorMessage } from '../lib/errors.ts';
import { createOperationsApp } from '../api/app.ts';
import { Metrics } from '../telemetry/metrics.ts';
import { activityScope } from '../telemetry/activity-interceptors.ts';
import { provisionTemporal } from '../temporal-server/provision.ts';
import { followDemo } from './demo-address.ts';
import { recordKernelHost } from './kernel-host-record.ts';
import { takenNames } from '../tools/system-tools.ts';
import { McpTools } from '../tools/mcp-tools.ts';
import { SYSTEM_TOOLS } from '../features/features.ts';
import { loadMcpRegistry } from '../mcp/registry.ts';
import { InProcessBus } from '../live/in-process-bus.ts';
import { OutputLink } from '../live/output-link.ts';
import { RedisBus } from '../live/redis-bus.ts';
import { openRedis, redisPrefix } from '../lib/redis.ts';
import { createOwnScrape } from './operations.ts';
import { Readiness, type Check } from './readiness.ts';
import { listenForHealth } from './http-server.ts';
import { openStores, type Stores } from './stores.ts';
import { openToolServers } from './tool-servers.ts';
import { activityOptions } from './worker.ts';

interface RunningKernelHost {
  /** Rejects if it fails; resolves when it has stopped. */
  finished: Promise<void>;
  stop: () => Promise<void>;
  capacity: number;
  /** The URL of its health and metrics, if they are served. */
  healthUrl: string | undefined;
}

interface KernelHostOptions {
  config: Config;
  log: Logger;
  /** Set if a server that runs everything has started it: see `KernelHostProcess`. */
  identity: string | undefined;
}

const NO_WALL_WITH_KEYS =
  'EVERTURN_KERNEL_SANDBOX=none lets the code of agents do all that the server may, and there are keys: use auto, or accept ' +
  'that with EVERTURN_KERNEL_SANDBOX_NONE_ACCEPTED=true';

/** The same value as that of kernels, which counts within their session. */
const SESSION_NICE = '5';

/** How often the host looks for code that waits although its turn has ended, in milliseconds. */
const SWEEP_MS = 30_000;

/** The memory that a kernel takes, if the operator has not set how many a host runs. */
const BYTES_PER_KERNEL = 1.25 * 1024 ** 3;

/** Starts a kernel host: the sandboxes of sessions are on it, and their code runs there. */
export async function startKernelHost({ config, log, identity }: KernelHostOptions): Promise<RunningKernelHost> {
  await using cleanup = new AsyncDisposableStack();
  const { dataDir, cacheDir, kernels, acceptsUnencrypted } = config;
  if (kernels.perHost === 0)
    throw new ConfigError('EVERTURN_KERNELS=0 allows no kernels: unset it, or run no kernel host');
  if (identity !== undefined) {
    await recordKernelHost(dataDir, identity);
    // It has a session of its own, which would get as much of the processors as all of the server: see autogroups in
    // sched(7). Without them there is no such file.
    await writeFile('/proc/self/autogroup', SESSION_NICE).catch(() => undefined);
  }
  const port = config.kernelHostPort;
  const health = await listenForHealth({ ...config, port }, 'EVERTURN_KERNEL_HOST_PORT', cleanup);
  const { external, namespace, installers, taskQueue: sharedQueue } = config.temporal;
  const temporal = await provisionTemporal({ dataDir, cacheDir, external, namespace, installers, log });
  cleanup.defer(() => temporal.stop());
  const stores = await openStores({ config, log, temporal });
  cleanup.defer(() => stores.close());
  const { catalog, cipher } = stores;
  const keyring = await Keyring.open({ catalog, config, log });
  cleanup.defer(() => keyring.close());
  const perSubject = () => limitsInForce(config, keyring).kernelsPerSubject;
  const python = new KernelPython({ ...kernels, cacheDir, env: process.env, log });
  cleanup.defer(() => python.close());
  const found = kernelEnvironment(python, kernels.sandbox, log);
  // Keys may be created at any time.
  const isAlone = () => keyring.isKeyless || kernels.acceptsNoSandbox;
  const environment = (): KernelEnvironment => {
    const now = found();
    const isOpen = now.state === 'ready' && now.wall.isolation === 'none';
    return isOpen && !isAlone() ? { state: 'failed', reason: NO_WALL_WITH_KEYS } : now;
  };
  // Also without keys: what code connects to is not chosen by a user.
  const allowPrivate = () => config.allowPrivateUrls === true;
  const capacity = kernels.perHost ?? Math.max(1, Math.floor(availableBytes() / BYTES_PER_KERNEL));
  const name = `${kernelQueue(sharedQueue)}/${randomUUID()}`;
  const metrics = new Metrics();
  const { registry } = metrics;
  const host = await SandboxHost.start({
    ...stores,
    name,
    capacity,
    perSubject,
    environment,
    network: new HostNetwork({ maximum: kernels.network, allowPrivate, log }),
    variables: { names: kernels.variables, env: process.env },
    registry,
    log,
  });
  cleanup.defer(() => host.stop());
  const connection = await NativeConnection.connect(temporal.connectionOptions);
  cleanup.defer(() => connection.close());
  const options = {
    connection,
    namespace: temporal.namespace,
    ...activityOptions({
      cipher,
      acceptsUnencrypted,
      activityInterceptors: [activityScope],
      shutdownSeconds: kernels.drainSeconds,
    }),
  };
  const conversations = new Conversations(stores);
  const mcpRegistry = await loadMcpRegistry(config.mcpServersFile);
  if (identity !== undefined) cleanup.defer(await followDemo(dataDir, mcpRegistry));
  const redis = config.redisUrl ? await openRedis({ url: config.redisUrl, log }) : undefined;
  cleanup.defer(() => redis?.close());
  const prefix = redisPrefix(config.temporal);
  const bus = redis ? new RedisBus({ redis, prefix, log, cipher }) : new InProcessBus();
  // The readers of a server that runs everything are in its process.
  const link = identity !== undefined && !redis ? new OutputLink(dataDir) : undefined;
  cleanup.defer(() => link?.close());
  const { publicUrl } = config;
  const servers = await openToolServers({
    ...stores,
    config,
    log,
    registry: mcpRegistry,
    bus,
    keyring,
    publicUrl,
    onlyLists: true,
  });
  cleanup.defer(() => servers.close());
  const mcpTools = new McpTools({
    registry: mcpRegistry,
    pool: servers.toolPool,
    metrics,
    runSecrets: catalog.runSecrets,
    warningsAbout: () => Promise.resolve([]),
    log,
  });
  const calls = new CodeCalls({
    ...stores,
    host,
    skills: await Skills.open(config.skillFolders),
    maxima: kernels.maxima,
    outputs: link ?? bus,
    mcpTools,
    toolTimeoutMs: config.tool.timeoutSeconds * 1000,
    mayOnServer: (subjectId, action) => keyring.mayOnServer(subjectId, action),
    takenNames: (spec) => takenNames(spec, SYSTEM_TOOLS),
  });
  const sweeping = setInterval(() => {
    void calls.cells.sweep((code) => isLeftOpen({ ...stores, log }, code));
  }, SWEEP_MS);
  cleanup.defer(() => clearInterval(sweeping));
  const inSandbox = createCallsInSandbox({ ...stores, conversations, calls });
  const ofTurn =
    <I extends { turnId: string; deadline: number }, R>(activity: (input: I) => Promise<R>) =>
    async (input: I): Promise<R> => {
      try {
        return await cancelAtDeadline(stores.client, input.deadline, () => activity(input));
      } finally {
        bus.hint(`growth:${input.turnId}`);
      }
    };
  const activities = {
    callTool: ofTurn(inSandbox.callTool),
    resumeCell: ofTurn(inSandbox.resumeCell),
    interruptCell: inSandbox.interruptCell,
  };
  const openSandbox = createOpenSandbox({ catalog, host });
  const own = await Worker.create({ ...options, taskQueue: name, activities });
  const shared = await Worker.create({ ...options, taskQueue: kernelQueue(sharedQueue), activities: { openSandbox } });
  const workers = [shared, own];
  const finished = Promise.all(workers.map((worker) => worker.run())).then(() => undefined);
  // If one fails, the other stops as well: sessions must not be assigned to a host that runs nothing.
  const stop = (): void => {
    for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
  };
  finished.catch(stop);
  const readiness = new Readiness({ ...stores, redis, metrics, log }, runningCheck(workers));
  const scrape = createOwnScrape({ metrics, log }, () => readiness.check());
  health?.serve(createOperationsApp({ config, metrics, log, readiness, scrape }));
  const running = cleanup.move();
  return {
    capacity,
    healthUrl: health?.url,
    finished,
    stop: async () => {
      await host.drain().catch(() => undefined);
      stop();
      await finished.catch(() => undefined);
      await running.disposeAsync();
    },
  };
}

/** Whether code that waits can still get an answer: its session's last turn runs, or has left it to the next one. */
async function isLeftOpen(
  { catalog, logs, log }: Pick<Stores, 'catalog' | 'logs'> & { log: Logger },
  { sessionId, turnId, threadId }: AskingCode,
): Promise<boolean> {
  try {
    const last = await catalog.turns.last(sessionId);
    const status = await logs.status(last?.id ?? turnId);
    if (!status) return false;
    return status.open || status.threads?.some((thread) => thread.threadId === threadId) === true;
  } catch (error) {
    log.warn({ err: errorMessage(error), threadId }, 'cannot determine whether code still waits; retrying');
    return true;
  }
}

/** A host without a Python is ready as well: it is being built, or sessions that need none continue. */
function runningCheck(workers: Worker[]): Check {
  return {
    dependency: 'worker',
    problem: 'the kernel host does not run',
    run: async () => {
      const states = workers.map((worker) => worker.getState());
      if (states.some((state) => state !== 'RUNNING')) throw new Error(states.join(', ').toLowerCase());
    },
  };
}

/** What kernels are started with, once it is found: building the environment of Python takes a minute. */
function kernelEnvironment(python: KernelPython, wanted: WantedWall, log: Logger): () => KernelEnvironment {
  let wall: KernelEnvironment | undefined;
  const probe = async (file: string, pythonVersion: string): Promise<void> => {
    wall = { state: 'building' };
    try {
      const found = await probeWalls(file, wanted);
      log.info({ python: file, isolation: found.isolation }, 'kernels can be started');
      wall = { state: 'ready', wall: found, pythonVersion };
    } catch (error) {
      wall = { state: 'failed', reason: errorMessage(error) };
      log.error(wall, 'no kernel can be started');
    }
  };
  return () => {
    const found = python.state();
    if (found.state === 'failed') return found;
    if (found.state === 'ready' && !wall) void probe(found.python, found.version);
    return wall ?? { state: 'building' };
  };
}
