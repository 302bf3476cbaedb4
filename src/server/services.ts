import type { Logger } from 'pino';
import { tryAgent } from '../agents/try-agent.ts';
import { AgentValidator } from '../agents/validate-agent.ts';
import { answerProblem } from '../tools/elicitation-answer.ts';
import { codeRules } from '../features/code/permissions/code-rules.ts';
import { createEditCheck } from '../tools/edit-problem.ts';
import { checkServers } from '../tools/check-servers.ts';
import { McpTools } from '../tools/mcp-tools.ts';
import { SystemTools } from '../tools/system-tools.ts';
import { ToolsetLoader } from '../tools/toolset-loader.ts';
import { unaskedTools } from '../tools/unasked-tools.ts';
import { Keyring } from '../auth/api-keys.ts';
import { ConfigError, type Config } from '../config.ts';
import type { LiveBus } from '../live/bus.ts';
import { SpeculativeCalls } from '../features/speculation/speculative-calls.ts';
import { InProcessBus } from '../live/in-process-bus.ts';
import { RedisBus } from '../live/redis-bus.ts';
import { TurnTailPool } from '../live/turn-tail.ts';
import { TurnSpeculator } from '../features/speculation/turn-speculation.ts';
import { StorageQuota } from '../engine/storage-quota.ts';
import { limitsInForce } from '../engine/limits.ts';
import { SessionQueue } from '../features/agent-sessions/session-queue.ts';
import { SessionCommands } from '../engine/session-commands.ts';
import { SessionIndex } from '../features/session-stream/session-index.ts';
import { SharedBudgets } from '../features/budgets/shared-budgets.ts';
import { TurnIndex } from '../engine/turn-index.ts';
import { TurnLimits } from '../engine/turn-limits.ts';
import { openEmbeddings } from '../models/embeddings.ts';
import { openProviders, type ModelAccess } from '../models/open-providers.ts';
import type { ModelProviders } from '../models/providers.ts';
import { createRunStates } from '../api/runs/run-states.ts';
import { ServerContacts } from '../models/server-contacts.ts';
import { openRedis, redisPrefix } from '../lib/redis.ts';
import { openStores } from './stores.ts';
import { openToolServers } from './tool-servers.ts';
import type { ProvisionedTemporal } from '../temporal-server/provision.ts';
import { Metrics } from '../telemetry/metrics.ts';
import type { Tracing } from '../telemetry/tracing.ts';
import type { McpRegistry } from '../mcp/registry.ts';
import { codeProblem } from '../features/code/agent-code.ts';
import { kernelAvailability, kernelsNotReady } from '../features/code/availability.ts';
import { placeFilesIn } from '../features/code/workspace/place-files.ts';
import { StoredWorkspaces } from '../features/code/workspace/stored-workspace.ts';
import { FileTexts } from '../features/files/file-texts.ts';
import { modelCallParts, openLogReading, SYSTEM_TOOLS } from '../features/features.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { Skills } from '../features/skills/skills.ts';

/** What the API and the worker need. They share it in one process; in separate processes each opens its own. */
export type Services = Awaited<ReturnType<typeof openServices>>;

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
  /** Starts a kernel host, in a server that runs everything. */
  ensureKernelHost?: (() => string | undefined) | undefined;
}

/** Opens all services. If one fails, those already open are closed. */
export async function openServices(options: ServicesOptions) {
  const { config, log, temporal, registry, model, hasWorker, tracing, ensureKernelHost: ensureHost } = options;
  const { publicUrl = config.publicUrl } = options;
  await using cleanup = new AsyncDisposableStack();
  for (const warning of registry.warnings) log.warn(warning);
  const skills = await Skills.open(config.skillFolders);
  const stores = await openStores({ config, log, temporal, tracing });
  cleanup.defer(() => stores.close());
  const { cipher, catalog, blobs, client, losses, logs } = stores;
  const redis = config.redisUrl ? await openRedis({ url: config.redisUrl, log }) : undefined;
  cleanup.defer(() => redis?.close());
  const metrics = new Metrics();
  const prefix = redisPrefix(config.temporal);
  const bus = options.bus ?? (redis ? new RedisBus({ redis, prefix, log, cipher }) : new InProcessBus());
  const speculativeCalls = new SpeculativeCalls((outcome) => metrics.speculativeCalls.inc({ outcome }));
  const hintSession = (sessionId: string) => bus.hint(`session:${sessionId}`);
  catalog.outbox.onChange((change) => bus.hint(`change:${change}`));
  const keyring = await Keyring.open({ catalog, config, log });
  cleanup.defer(() => keyring.close());
  const runStates = createRunStates({ catalog, logs, log });
  const logReading = openLogReading({ catalog, logs, runStates });
  const turnIndex = new TurnIndex({ catalog, logs, logReading, hintSession });
  const serverContacts = new ServerContacts({ catalog, log });
  const shared = redis && { redis, prefix };
  const models = openProviders(model, {
    ...config.model,
    metrics,
    log,
    shared,
    onResponse: (server) => serverContacts.note(server),
  });
  checkOwnModels(config, models);
  const embeddings = openEmbeddings(config, model, models);
  const toolServers = await openToolServers({
    ...stores,
    config,
    log,
    registry,
    bus,
    keyring,
    publicUrl,
    onlyLists: !hasWorker,
  });
  cleanup.defer(() => toolServers.close());
  const { allowPrivateUrls, signIns, sessionWatches, pool, toolPool } = toolServers;
  const workspaces = new StoredWorkspaces({ catalog, blobs });
  const { kernelHosts } = catalog;
  const { perHost } = config.kernels;
  const availability = (spec: AgentSpec) => kernelAvailability(spec, { kernelHosts, perHost, ensureHost });
  const agentCheck = new AgentValidator({
    models,
    registry,
    featureProblem: async (spec) => {
      const hasEmbeddings = embeddings !== undefined;
      const problem = codeProblem(spec, { ...config.kernels, hasEmbeddings, availability: await availability(spec) });
      return problem ?? skills.firstProblem(spec);
    },
    notReady: (spec) => kernelsNotReady(spec, availability),
    systemTools: SYSTEM_TOOLS,
    policyServer: () => ({ issuer: config.oidc?.issuer, isKeyless: keyring.isKeyless }),
    knownSubjects: async () => ({ roles: await keyring.rolesById(), hasBearers: config.oidc !== undefined }),
    registered: (names) => catalog.agents.registered(names),
    unasked: (spec) => unaskedTools(spec, { registry, pool: { ...config.mcp, allowPrivateUrls } }),
    log,
  });
  const toolKinds = {
    system: new SystemTools(SYSTEM_TOOLS, { catalog, models, skills, embeddings, losses }),
    mcp: new McpTools({
      registry,
      pool: toolPool,
      metrics,
      runSecrets: catalog.runSecrets,
      warningsAbout: (server, spec) => agentCheck.warningsAbout(server, spec),
      log,
    }),
  };
  const toolsets = new ToolsetLoader(toolKinds);
  const budgets = new SharedBudgets({ catalog, config, log });
  const limits = () => limitsInForce(config, keyring);
  const services = {
    config,
    log,
    ...stores,
    metrics,
    /** Undefined if tracing is off. */
    tracing,
    keyring,
    /** Whether URLs from clients may currently resolve to private addresses. */
    allowPrivateUrls,
    /** Undefined if no Redis is configured. */
    redis,
    bus,
    speculativeCalls,
    keptAnswers: catalog.keptAnswers,
    turnIndex,
    runStates,
    logReading,
    sessionIndex: new SessionIndex({ catalog, logs, turnIndex }),
    hintSession,
    models,
    serverContacts,
    toolKinds,
    toolsets,
    placeFiles: placeFilesIn(workspaces),
    modelCallParts: modelCallParts({
      catalog,
      ensureHost,
      budgets,
      skills,
      signIns,
      files: new FileTexts({ blobs, log }),
      workspaces,
    }),
    signIns,
    registry,
    budgets,
    toolPool,
    checkServers: (subjectId: string, signal: AbortSignal) =>
      checkServers(registry.names, { registry, pool, subjectId, signal }),
    tryAgent: (spec: AgentSpec, subjectId: string, signal: AbortSignal) =>
      tryAgent(spec, { models, embeddings, registry, pool, subjectId, hasPublicUrl: publicUrl !== undefined, signal }),
    agentCheck,
    answerCheck: answerProblem,
    editCheck: createEditCheck({ catalog, toolsets, rules: (spec, scope) => codeRules(catalog, spec, scope) }),
    limits,
    turnLimits: new TurnLimits({ catalog, config, limits }),
    storageQuota: new StorageQuota({ catalog, limits }),
    speculator: new TurnSpeculator(speculativeCalls),
    commands: new SessionCommands({ client, taskQueue: config.temporal.taskQueue, log }),
    tails: new TurnTailPool({ logs, bus, log }),
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
