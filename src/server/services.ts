import { Client, Connection } from '@temporalio/client';
import type { Logger } from 'pino';
import { tryAgent, type TriedPart } from '../agents/try-agent.ts';
import { AgentValidator } from '../agents/validate-agent.ts';
import { answerProblem } from '../tools/elicitation-answer.ts';
import { createEditCheck } from '../tools/edit-problem.ts';
import { checkServers, type CheckedServer } from '../tools/check-servers.ts';
import { createToolKinds, type ToolKinds } from '../tools/kinds.ts';
import { ToolsetLoader } from '../tools/toolset-loader.ts';
import { unaskedTools } from '../tools/unasked-tools.ts';
import { Keyring } from '../auth/api-keys.ts';
import { openBlobStore } from '../blobs/open-blob-store.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { AnswerCheck } from '../engine/check-answers.ts';
import type { EditCheck } from '../engine/edited-arguments.ts';
import { Catalog } from '../catalog/catalog.ts';
import { ConfigError, type Config } from '../config.ts';
import { Cipher } from '../encryption/cipher.ts';
import type { LiveBus } from '../live/bus.ts';
import { SpeculativeCalls } from '../speculation/speculative-calls.ts';
import { InProcessBus } from '../live/in-process-bus.ts';
import { RedisBus } from '../live/redis-bus.ts';
import { SessionWatches } from '../live/session-watches.ts';
import { TurnTailPool } from '../live/turn-tail.ts';
import { TurnSpeculator } from '../speculation/turn-speculation.ts';
import { StorageQuota } from '../engine/storage-quota.ts';
import { countedBlobs } from '../blobs/counted-blobs.ts';
import { limitsInForce, type Limits } from '../engine/limits.ts';
import { SessionQueue } from '../engine/session-queue.ts';
import { SessionCommands } from '../engine/session-commands.ts';
import { SessionIndex } from '../engine/session-index.ts';
import { SharedBudgets } from '../engine/shared-budgets.ts';
import type { RunStates } from '../engine/archive-turn.ts';
import { TurnIndex } from '../engine/turn-index.ts';
import { TurnLimits } from '../engine/turn-limits.ts';
import { TurnLogReader } from '../engine/turn-log-reader.ts';
import { openProviders, type ModelAccess } from '../models/open-providers.ts';
import type { ModelProviders } from '../models/providers.ts';
import { createRunStates } from '../api/runs/run-states.ts';
import { ServerContacts } from '../models/server-contacts.ts';
import { dataConverterFor, workerConverterFor } from '../temporal/data-converter.ts';
import { GRPC_CHANNEL_ARGS, TurnHistory } from '../temporal/history.ts';
import { errorMessage, StartupError } from '../lib/errors.ts';
import { OnceLog } from '../lib/once-log.ts';
import { openRedis, redisPrefix, type Redis } from '../lib/redis.ts';
import type { ProvisionedTemporal } from '../temporal-server/provision.ts';
import { Metrics } from '../telemetry/metrics.ts';
import type { Tracing } from '../telemetry/tracing.ts';
import { requestHeader } from '../telemetry/request-id-interceptor.ts';
import { McpPool } from '../mcp/pool.ts';
import { ProgramRecords } from '../mcp/program-records.ts';
import type { McpRegistry } from '../mcp/registry.ts';
import type { WatchSession } from '../mcp/session-uses.ts';
import { FileTexts } from '../files/file-texts.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { Skills } from '../skills/skills.ts';
import { SignIns } from '../mcp/sign-ins.ts';
import { signInUrls } from '../api/sessions/sign-ins.ts';

/** What the API and the worker need. They share it in one process; in separate processes each opens its own. */
export interface Services {
  config: Config;
  log: Logger;
  /** Encrypts stored data if there are encryption keys. */
  cipher: Cipher;
  metrics: Metrics;
  /** Undefined if tracing is off. */
  tracing: Tracing | undefined;
  catalog: Catalog;
  keyring: Keyring;
  /** Whether URLs from clients may currently resolve to private addresses. */
  allowPrivateUrls: () => boolean;
  blobs: BlobStore;
  losses: OnceLog;
  /** Undefined if no Redis is configured. */
  redis: Redis | undefined;
  bus: LiveBus;
  speculativeCalls: SpeculativeCalls;
  client: Client;
  history: TurnHistory;
  logs: TurnLogReader;
  turnIndex: TurnIndex;
  runStates: RunStates;
  sessionIndex: SessionIndex;
  hintSession: (sessionId: string) => void;
  models: ModelProviders;
  serverContacts: ServerContacts;
  toolKinds: ToolKinds;
  toolsets: ToolsetLoader;
  skills: Skills;
  files: FileTexts;
  signIns: SignIns;
  registry: McpRegistry;
  budgets: SharedBudgets;
  toolPool: McpPool;
  checkServers: (subjectId: string, signal: AbortSignal) => Promise<CheckedServer[]>;
  tryAgent: (spec: AgentSpec, subjectId: string, signal: AbortSignal) => Promise<TriedPart[]>;
  agentCheck: AgentValidator;
  answerCheck: AnswerCheck;
  editCheck: EditCheck;
  limits: () => Limits;
  turnLimits: TurnLimits;
  speculator: TurnSpeculator;
  commands: SessionCommands;
  tails: TurnTailPool;
  sessionWatches: SessionWatches;
  sessionQueue: SessionQueue;
  storageQuota: StorageQuota;
  close: () => Promise<void>;
}

interface ServicesOptions {
  config: Config;
  log: Logger;
  temporal: ProvisionedTemporal;
  registry: McpRegistry;
  /** Default: over Redis if it is configured, else within the process. */
  bus?: LiveBus | undefined;
  model: ModelAccess;
  /** Whether a worker runs in this process. Otherwise tools are only listed here, to validate edited arguments. */
  hasWorker: boolean;
  tracing?: Tracing | undefined;
  /** Where users reach the API. Default: the configured address. */
  publicUrl?: string | undefined;
}

/** Opens all services. If one fails, those already open are closed. */
export async function openServices({
  config,
  log,
  temporal,
  registry,
  bus,
  model,
  hasWorker,
  tracing,
  publicUrl = config.publicUrl,
}: ServicesOptions): Promise<Services> {
  await using cleanup = new AsyncDisposableStack();
  for (const warning of registry.warnings) log.warn(warning);
  const skills = await Skills.open(config.skillFolders);
  const { connectionOptions, namespace } = temporal;
  const cipher = new Cipher(config.encryptionKeys);
  const catalog = await Catalog.open(config.database, log, cipher);
  cleanup.defer(() => catalog.close());
  await registerKeys({ catalog, cipher, log });
  const redis = config.redisUrl ? await openRedis({ url: config.redisUrl, log }) : undefined;
  cleanup.defer(() => redis?.close());
  const metrics = new Metrics();
  const prefix = redisPrefix(config.temporal);
  const liveBus = bus ?? (redis ? new RedisBus({ redis, prefix, log, cipher }) : new InProcessBus());
  const speculativeCalls = new SpeculativeCalls((outcome) => metrics.speculativeCalls.inc({ outcome }));
  const hintSession = (sessionId: string) => liveBus.hint(`session:${sessionId}`);
  catalog.outbox.onChange((change) => liveBus.hint(`change:${change}`));
  const keyring = await Keyring.open({ catalog, config, log });
  cleanup.defer(() => keyring.close());
  const allowPrivateUrls = () => config.allowPrivateUrls ?? keyring.isKeyless;
  const stored = await openBlobs(config, cipher);
  const blobs = countedBlobs(stored, { count: (...blob) => catalog.storedBytes.addBlob(...blob), log });
  cleanup.defer(() => blobs.close());
  // No interceptors, which means no retries by the client: they make an overloaded server look silent, and a retry that
  // is pending when the connection closes ends the process.
  const connection = await Connection.connect({
    ...connectionOptions,
    channelArgs: GRPC_CHANNEL_ARGS,
    interceptors: [],
  });
  cleanup.defer(() => connection.close());
  const dataConverter = dataConverterFor(cipher);
  const client = new Client({
    connection,
    namespace,
    ...(dataConverter && { dataConverter }),
    interceptors: { workflow: [requestHeader, ...(tracing ? [tracing.commands] : [])] },
  });
  const converter = client.options.loadedDataConverter;
  const { payloadCodecs: commandCodecs = [] } = workerConverterFor(cipher, config) ?? {};
  const history = new TurnHistory({ connection, namespace, converter, commandCodecs });
  const losses = new OnceLog(log);
  const logs = new TurnLogReader({ catalog, history, blobs, losses });
  const turnIndex = new TurnIndex({ catalog, logs, hintSession });
  const runStates = createRunStates({ catalog, logs, log });
  const serverContacts = new ServerContacts({ catalog, log });
  const shared = redis && { redis, prefix };
  const models = openProviders(model, {
    ...config.model,
    metrics,
    log,
    shared,
    onAnswer: (server) => serverContacts.note(server),
  });
  checkOwnModels(config, models);
  const urls = signInUrls(publicUrl);
  const signIns = new SignIns({ catalog, registry, urls, allowPrivateUrls, log });
  cleanup.defer(() => signIns.close());
  const sessionWatches = new SessionWatches({ catalog, bus: liveBus, log });
  const watchSession: WatchSession = (sessionId, onDeleted) => sessionWatches.watch(sessionId, onDeleted);
  const programs = await ProgramRecords.open(config.dataDir, log);
  const pool = { ...config.mcp, allowPrivateUrls, grants: signIns.grants, programs, log };
  const areAwaited = (sessionIds: string[]) => catalog.actions.isAnyPending(sessionIds);
  const toolPool = new McpPool({ ...pool, watchSession, areAwaited, onlyLists: !hasWorker });
  cleanup.defer(() => toolPool.close());
  const agentCheck = new AgentValidator({
    models,
    registry,
    skills,
    policyServer: () => ({ issuer: config.oidc?.issuer, isKeyless: keyring.isKeyless }),
    knownSubjects: async () => ({ roles: await keyring.rolesById(), hasBearers: config.oidc !== undefined }),
    registered: (names) => catalog.agents.registered(names),
    unasked: (spec) => unaskedTools(spec, { registry, pool: { ...config.mcp, allowPrivateUrls } }),
    log,
  });
  const toolKinds = createToolKinds({
    registry,
    pool: toolPool,
    metrics,
    skills,
    runSecrets: catalog.runSecrets,
    warningsAbout: (server, spec) => agentCheck.warningsAbout(server, spec),
    log,
  });
  const toolsets = new ToolsetLoader(toolKinds);
  const limits = () => limitsInForce(config, keyring);
  const services = {
    config,
    log,
    cipher,
    metrics,
    tracing,
    catalog,
    keyring,
    allowPrivateUrls,
    blobs,
    losses,
    redis,
    bus: liveBus,
    speculativeCalls,
    client,
    history,
    logs,
    turnIndex,
    runStates,
    sessionIndex: new SessionIndex({ catalog, logs, turnIndex }),
    hintSession,
    models,
    serverContacts,
    toolKinds,
    toolsets,
    skills,
    files: new FileTexts({ blobs, log }),
    signIns,
    registry,
    budgets: new SharedBudgets({ catalog, config, log }),
    toolPool,
    checkServers: (subjectId: string, signal: AbortSignal) =>
      checkServers(registry.names, { registry, pool, subjectId, signal }),
    tryAgent: (spec: AgentSpec, subjectId: string, signal: AbortSignal) =>
      tryAgent(spec, { models, registry, pool, subjectId, hasPublicUrl: urls !== undefined, signal }),
    agentCheck,
    answerCheck: answerProblem,
    editCheck: createEditCheck({ catalog, toolsets }),
    limits,
    turnLimits: new TurnLimits({ catalog, config, limits }),
    storageQuota: new StorageQuota({ catalog, limits }),
    speculator: new TurnSpeculator(speculativeCalls),
    commands: new SessionCommands({ client, taskQueue: config.temporal.taskQueue, log }),
    tails: new TurnTailPool({ logs, bus: liveBus, log }),
    sessionWatches,
  };
  const opened = cleanup.move();
  return { ...services, sessionQueue: new SessionQueue(services), close: () => opened.disposeAsync() };
}

/** @throws ConfigError if a setting names a model of a provider that does not exist */
function checkOwnModels({ demoModel, defaultModel }: Config, models: ModelProviders): void {
  const own = { EVERTURN_DEMO_MODEL: demoModel, EVERTURN_DEFAULT_MODEL: defaultModel };
  for (const [variable, model] of Object.entries(own)) {
    const problem = model === undefined ? undefined : models.prefixProblem(model);
    if (problem !== undefined) throw new ConfigError(`${variable}: ${problem}`);
  }
}

/** @throws StartupError if the store cannot be written */
async function openBlobs(config: Config, cipher: Cipher): Promise<BlobStore> {
  const blobs = await openBlobStore(config, cipher);
  try {
    await blobs.check();
    return blobs;
  } catch (error) {
    blobs.close();
    const settings = config.blobs
      ? 'EVERTURN_BLOBS, AWS_ENDPOINT_URL_S3, AWS_REGION and the credentials (AWS_ACCESS_KEY_ID, ...)'
      : 'EVERTURN_DATA';
    throw new StartupError(`the blobs cannot be written; check ${settings}: ${errorMessage(error)}`, { cause: error });
  }
}

/** @throws CatalogError */
async function registerKeys({ catalog, cipher, log }: Pick<Services, 'catalog' | 'cipher' | 'log'>): Promise<void> {
  const missing = await catalog.encryptionKeys.register(cipher, new Date().toISOString());
  if (missing.length === 0) return;
  log.warn({ keys: missing }, 'data encrypted under these keys cannot be read: EVERTURN_ENCRYPTION_KEYS lacks them');
}
