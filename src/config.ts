import { isIP } from 'node:net';
import { homedir } from 'node:os';
import path from 'node:path';
import { loadClientConnectConfig, type ClientConnectConfig } from '@temporalio/envconfig';
import { z } from 'zod';
import type { Database } from './catalog/database.ts';
import type { SqliteSync } from './catalog/sqlite.ts';
import { registerSecrets } from './lib/redact.ts';
import { errorMessage, StartupError } from './lib/errors.ts';
import { nearestName } from './lib/nearest-name.ts';
import { DEFAULT_STREAM_LIMITS } from './mcp/stream-budget.ts';
import { secretVariable } from './lib/secret-variable.ts';
import { MAX_SILENCE_SECONDS } from './models/provider.ts';
import { KERNEL_LIMITS } from './spec/code-actions-spec.ts';
import {
  absolutePath,
  apiKeys,
  blobsUrl,
  databaseUrl,
  encryptionKeys,
  flag,
  folders,
  installers,
  limit,
  mcpLimit,
  networkMaximum,
  numberFrom,
  oidcRoles,
  port,
  proxies,
  publicUrl,
  redisUrl,
  seconds,
  TEN_YEARS_SECONDS,
  url,
  variableNames,
  wholeFrom,
} from './setting-values.ts';
import { subjectBudget } from './spec/subject-budget.ts';

/** A setting is invalid; the message names the variable and its valid values. */
export class ConfigError extends StartupError {}

/** Whether a process is a whole Everturn (`start`) or one part of it. */
export type ProcessRole = 'start' | 'api' | 'worker' | 'kernel-host';

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

const SANDBOXES = ['auto', 'bwrap', 'landlock', 'none'] as const;

/** A setting: its variable, and how the value is read. */
interface Setting<Schema extends z.ZodType> {
  variable: string;
  schema: Schema;
}

function from<Schema extends z.ZodType>(variable: string, schema: Schema): Setting<Schema> {
  return { variable, schema };
}

function maximumOf({ min, max, maximum }: { min: number; max: number; maximum: number }) {
  return wholeFrom(min, max).default(maximum);
}

/** Each setting by itself. `loadConfig` adds what depends on several of them. */
const SETTINGS = {
  host: from(
    'EVERTURN_HOST',
    z
      .string()
      .refine((host) => host === 'localhost' || isIP(host) !== 0, { error: 'must be an IP address or localhost' })
      .default('127.0.0.1'),
  ),
  port: from('EVERTURN_PORT', port.default(8080)),
  /** Where users reach the API, through proxies; unset: only on this machine, if `host` is loopback. */
  publicUrl: from('EVERTURN_PUBLIC_URL', publicUrl.optional()),
  /** The port on which an API serves its metrics without a key; unset: only on its own port, with a key. */
  metricsPort: from('EVERTURN_METRICS_PORT', port.optional()),
  /** The port on which a standalone worker serves its health and metrics; unset: none. */
  workerPort: from('EVERTURN_WORKER_PORT', port.optional()),
  /** The same for a kernel host. */
  kernelHostPort: from('EVERTURN_KERNEL_HOST_PORT', port.optional()),
  /** Folder for everything that the server stores itself: catalog, the embedded Temporal's database, blobs by default. */
  dataDir: from('EVERTURN_DATA', absolutePath.prefault('.everturn')),
  blobs: from('EVERTURN_BLOBS', blobsUrl.optional()),
  s3Endpoint: from('AWS_ENDPOINT_URL_S3', url.optional()),
  awsEndpoint: from('AWS_ENDPOINT_URL', url.optional()),
  /** Folder for what can be downloaded or built again, such as the Temporal CLI. */
  cacheDir: from(
    'XDG_CACHE_HOME',
    z
      .string()
      .optional()
      .transform((folder = path.join(homedir(), '.cache')) => path.join(folder, 'everturn')),
  ),
  /** API keys in addition to those in the catalog. */
  apiKeys: from('EVERTURN_API_KEYS', apiKeys),
  /** Stored data is encrypted under the first key; without keys it is not encrypted. */
  encryptionKeys: from('EVERTURN_ENCRYPTION_KEYS', encryptionKeys),
  /** Whether unencrypted commands from Temporal are accepted although there are keys. */
  acceptsUnencrypted: from('EVERTURN_ACCEPT_UNENCRYPTED', flag.default(false)),
  oidc: {
    issuer: from('EVERTURN_OIDC_ISSUER', url.optional()),
    /** The audience that tokens must have. */
    audience: from('EVERTURN_OIDC_AUDIENCE', z.string().optional()),
    /** The claims with the name and the roles of the bearer. */
    nameClaim: from('EVERTURN_OIDC_NAME_CLAIM', z.string().default('preferred_username')),
    roleClaim: from('EVERTURN_OIDC_ROLE_CLAIM', z.string().default('roles')),
    /** The role of each value of the role claim. */
    roles: from('EVERTURN_OIDC_ROLES', oidcRoles),
  },
  /** Folder of agent files that are loaded at start. */
  agentsDir: from('EVERTURN_AGENTS', absolutePath.optional()),
  /** Folders of skills. */
  skillFolders: from('EVERTURN_SKILLS', folders),
  /** File that registers MCP servers by name. */
  mcpServersFile: from('EVERTURN_MCP_SERVERS', absolutePath.optional()),
  /** What an MCP server may send in a minute of its own accord. */
  mcp: {
    megabytesPerMinute: from(
      'EVERTURN_MCP_MEGABYTES_PER_MINUTE',
      mcpLimit.default(DEFAULT_STREAM_LIMITS.megabytesPerMinute),
    ),
    messagesPerMinute: from(
      'EVERTURN_MCP_MESSAGES_PER_MINUTE',
      mcpLimit.default(DEFAULT_STREAM_LIMITS.messagesPerMinute),
    ),
  },
  allowPrivateUrls: from('EVERTURN_ALLOW_PRIVATE_URLS', flag.optional()),
  /** The model of the agent `demo`. */
  demoModel: from('EVERTURN_DEMO_MODEL', z.string().default('gpt-5-mini')),
  /** The model of agents of the Agents API v2 that name none. */
  defaultModel: from('EVERTURN_DEFAULT_MODEL', z.string().min(1).optional()),
  /** The model whose embeddings rank tools for agents with `tool_search: "hybrid"`. */
  embeddingModel: from('EVERTURN_EMBEDDING_MODEL', z.string().min(1).optional()),
  model: {
    /** A model call that has received no piece of the message for this long is retried. */
    firstChunkSeconds: from('EVERTURN_MODEL_FIRST_CHUNK_SECONDS', seconds(600, MAX_SILENCE_SECONDS)),
    /** The same after a piece of it. */
    idleSeconds: from('EVERTURN_MODEL_IDLE_SECONDS', seconds(45, MAX_SILENCE_SECONDS)),
    /** How long a failing model call is retried before the turn ends in error. */
    retrySeconds: from('EVERTURN_MODEL_RETRY_SECONDS', seconds(300)),
  },
  tool: {
    /** How long one tool call may run. */
    timeoutSeconds: from('EVERTURN_TOOL_TIMEOUT_SECONDS', seconds(600)),
    /** A worker without a heartbeat for this long is considered dead, and its at-most-once tool calls lost. */
    heartbeatSeconds: from('EVERTURN_TOOL_HEARTBEAT_SECONDS', seconds(60)),
  },
  /** How long one turn may run. */
  turnSeconds: from('EVERTURN_TURN_TIMEOUT_SECONDS', seconds(86_400)),
  /** After how long at rest, without a command, the workflow of a session ends. */
  sessionIdleSeconds: from('EVERTURN_SESSION_IDLE_SECONDS', seconds(30 * 86_400, TEN_YEARS_SECONDS)),
  /** How many sub-agents of one turn run at once. */
  subAgents: from('EVERTURN_SUB_AGENTS', wholeFrom(1, 20).default(5)),
  /** After how many days an ended run of the Runs API is deleted, unless its agent sets it; 0: never. */
  runRetentionDays: from('EVERTURN_RUN_RETENTION_DAYS', wholeFrom(0, 36_500).default(30)),
  /** How many sessions of the Agents API v2 work or wait for results at once; further ones wait in a queue. */
  agentSessions: from('EVERTURN_AGENT_SESSIONS', wholeFrom(1, 10_000).default(100)),
  /** How long running tool calls may take to finish when the server stops. */
  shutdownSeconds: from('EVERTURN_SHUTDOWN_SECONDS', seconds(20)),
  /** Admission limits. 0 is no limit; unset limits depend on whether there are keys: see `limitsInForce`. */
  limits: {
    /** Requests of one subject. */
    requestsPerMinute: from('EVERTURN_REQUESTS_PER_MINUTE', limit),
    /** Requests with an unknown key, from one address. */
    unknownKeysPerMinute: from('EVERTURN_UNKNOWN_KEYS_PER_MINUTE', limit),
    /** Concurrent turns in the sessions of one subject. */
    turnsPerSubject: from('EVERTURN_TURNS_PER_SUBJECT', limit),
    /** Concurrent turns. */
    turns: from('EVERTURN_TURNS', limit),
    /** Open event streams of one subject in one process. */
    streamsPerSubject: from('EVERTURN_STREAMS_PER_SUBJECT', limit),
    /** Open event streams in one process. */
    streams: from('EVERTURN_STREAMS', limit),
    /** Slots of agent sessions that one subject may take. */
    agentSessionsPerSubject: from('EVERTURN_AGENT_SESSIONS_PER_SUBJECT', limit),
    /** What the sessions of one subject store, in MiB. */
    storedMegabytesPerSubject: from('EVERTURN_STORED_MEGABYTES_PER_SUBJECT', limit),
    /** Kernels of one subject. */
    kernelsPerSubject: from('EVERTURN_KERNELS_PER_SUBJECT', limit),
  },
  /** What the turns in the sessions of each subject may use in a day or a month, of UTC; unset: no limit. */
  subjectBudget: from('EVERTURN_SUBJECT_BUDGET', subjectBudget.optional()),
  kernels: {
    /** How many a kernel host runs; unset: as many as have room in its memory. 0: none, so no agent acts in code. */
    perHost: from('EVERTURN_KERNELS', wholeFrom(0, 10_000).optional()),
    /** The wall around a kernel; `auto`: the strongest that this machine has. */
    sandbox: from(
      'EVERTURN_KERNEL_SANDBOX',
      z.enum(SANDBOXES, { error: `must be one of ${SANDBOXES.join(', ')}` }).default('auto'),
    ),
    /** Whether `none` is accepted where clients are not the operator. */
    acceptsNoSandbox: from('EVERTURN_KERNEL_SANDBOX_NONE_ACCEPTED', flag.default(false)),
    /** An interpreter that has what kernels need; unset: an environment that is built in the cache. */
    python: from('EVERTURN_KERNEL_PYTHON', absolutePath.optional()),
    /** A lock file that adds packages to that environment. */
    requirements: from('EVERTURN_KERNEL_REQUIREMENTS', absolutePath.optional()),
    /** The variables of kernel hosts that agents may give their code. */
    variables: from('EVERTURN_KERNEL_ENV', variableNames),
    /** The hosts that the code of agents may reach at most. */
    network: from('EVERTURN_KERNEL_NETWORK', networkMaximum),
    /** What agents may ask for at most, by their names in the agent format. */
    maxima: {
      memory_mb: from('EVERTURN_KERNEL_MEMORY_MB', maximumOf(KERNEL_LIMITS.memory_mb)),
      cpus: from(
        'EVERTURN_KERNEL_CPUS',
        numberFrom(KERNEL_LIMITS.cpus.min, KERNEL_LIMITS.cpus.max).default(KERNEL_LIMITS.cpus.maximum),
      ),
      processes: from('EVERTURN_KERNEL_PROCESSES', maximumOf(KERNEL_LIMITS.processes)),
      timeout_seconds: from('EVERTURN_KERNEL_TIMEOUT_SECONDS', maximumOf(KERNEL_LIMITS.timeout_seconds)),
      idle_seconds: from('EVERTURN_KERNEL_IDLE_SECONDS', maximumOf(KERNEL_LIMITS.idle_seconds)),
      suspend_seconds: from('EVERTURN_KERNEL_SUSPEND_SECONDS', maximumOf(KERNEL_LIMITS.suspend_seconds)),
    },
    /** How long running cells may take to finish when a kernel host stops. */
    drainSeconds: from('EVERTURN_KERNEL_DRAIN_SECONDS', seconds(300)),
  },
  /** Addresses or networks of proxies whose X-Forwarded-For header is trusted. */
  trustedProxies: from('EVERTURN_TRUSTED_PROXIES', proxies),
  temporal: {
    /** The server's address; its other settings are those of Temporal's own clients. */
    address: from(
      'TEMPORAL_ADDRESS',
      z
        .string()
        .regex(/^([^:/\s[\]]+|\[[\da-f:.]+\]):\d+$/i, { error: 'must be <host>:<port>' })
        .optional(),
    ),
    namespace: from('TEMPORAL_NAMESPACE', z.string().optional()),
    taskQueue: from('EVERTURN_TASK_QUEUE', z.string().default('everturn')),
    buildId: from(
      'EVERTURN_BUILD_ID',
      z
        .string()
        .regex(/^[a-z\d][\w.-]{0,127}$/i, { error: 'must be 1 to 128 letters, digits and . _ -, such as an image tag' })
        .optional(),
    ),
    installers: from('EVERTURN_TEMPORAL_INSTALL', installers),
    maySdkInstall: from('EVERTURN_DOWNLOAD_TEMPORAL', flag.default(true)),
    /** Whether workers respond to queries for the stacks of workflows. */
    stackTraces: from('EVERTURN_WORKFLOW_STACK_TRACES', flag.default(false)),
  },
  sqliteSync: from('EVERTURN_SQLITE_SYNC', z.enum(['normal', 'full'], { error: 'must be normal or full' }).optional()),
  database: from('DATABASE_URL', databaseUrl.optional()),
  logLevel: from('LOG_LEVEL', z.enum(LOG_LEVELS, { error: `must be one of ${LOG_LEVELS.join(', ')}` }).default('info')),
  /** OpenTelemetry reads its other settings itself. */
  tracing: {
    endpoint: from('OTEL_EXPORTER_OTLP_ENDPOINT', url.optional()),
    tracesEndpoint: from('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', url.optional()),
    isDisabled: from('OTEL_SDK_DISABLED', flag.optional()),
  },
  /** File that registers model providers by name. */
  modelProvidersFile: from('EVERTURN_MODEL_PROVIDERS', absolutePath.optional()),
  openai: {
    apiKey: from('OPENAI_API_KEY', z.string().optional()),
    baseUrl: from('OPENAI_BASE_URL', url.optional()),
  },
  /** The Redis that connects the processes of one Everturn; the URL may contain a password. */
  redisUrl: from('REDIS_URL', redisUrl.optional()),
};

type Value<Part> = Part extends Setting<infer Schema> ? z.output<Schema> : { [Name in keyof Part]: Value<Part[Name]> };

type Settings = Value<typeof SETTINGS>;

type AnySetting = Setting<z.ZodType>;

interface Group {
  [name: string]: AnySetting | Group;
}

function isSetting(part: AnySetting | Group): part is AnySetting {
  return part['schema'] instanceof z.ZodType;
}

function settingsIn(group: Group): AnySetting[] {
  return Object.values(group).flatMap((part) => (isSetting(part) ? [part] : settingsIn(part)));
}

const schema = z.object(Object.fromEntries(settingsIn(SETTINGS).map(({ variable, schema }) => [variable, schema])));

/** @throws ConfigError */
function readSettings(env: Record<string, string>): Settings {
  const parsed = schema.safeParse(env);
  if (!parsed.success) {
    const lines = parsed.error.issues.map(({ path: [name], message }) => {
      const shown = SECRETS.has(String(name)) ? '' : ` (got ${JSON.stringify(env[String(name)])})`;
      return `${String(name)} ${message}${shown}`;
    });
    throw new ConfigError(lines.join('\n'));
  }
  const valuesOf = (group: Group): unknown =>
    Object.fromEntries(
      Object.entries(group).map(([name, part]) => [
        name,
        isSetting(part) ? parsed.data[part.variable] : valuesOf(part),
      ]),
    );
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- each value is that of the setting's schema
  return valuesOf(SETTINGS) as Settings;
}

/**
 * All of the server's settings, from the environment, validated. The variables are documented in docs/configuration.md;
 * a test compares the two.
 */
export type Config = ReturnType<typeof loadConfig>;

/** @throws ConfigError, or StartupError for the file of a secret */
export function loadConfig(variables: NodeJS.ProcessEnv = process.env, role: ProcessRole = 'start') {
  const env = withSecrets(variables);
  const { s3Endpoint, awsEndpoint, ...settings } = readSettings(env);
  registerSecrets(secretsOf(settings, env));
  if (role !== 'start') checkShared(env, role);
  checkKernels(settings);
  const { dataDir, blobs, allowPrivateUrls, temporal, tracing } = settings;
  // An embedded Temporal loses its last commits together with the catalog; an external Temporal would still have them.
  const sqliteSync: SqliteSync = settings.sqliteSync ?? (temporal.address ? 'full' : 'normal');
  return {
    ...settings,
    /** Where blobs are stored; unset: in `dataDir`. */
    blobs: blobs && { ...blobs, endpoint: s3Endpoint ?? awsEndpoint },
    /** The OpenID Connect provider whose tokens are accepted. */
    oidc: oidcOf(settings.oidc),
    /**
     * Whether URLs from clients may resolve to private or loopback addresses. Unset: only while there are no keys. A worker
     * cannot see whether the environment of the API has keys.
     */
    allowPrivateUrls: allowPrivateUrls ?? (role === 'worker' ? false : undefined),
    /** Whether traces are recorded. */
    tracing: !tracing.isDisabled && (tracing.endpoint ?? tracing.tracesEndpoint) !== undefined,
    temporal: {
      /** The configured server; unset: an embedded one. */
      external: temporal.address ? externalTemporal(env) : undefined,
      namespace: temporal.namespace ?? (temporal.address ? 'default' : 'everturn'),
      taskQueue: temporal.taskQueue,
      /**
       * The version of a standalone worker, for Temporal's worker versioning; unset: it is not used. `everturn start`
       * replaces its only worker, so turns that stay with a version would wait for ever.
       */
      buildId: role === 'worker' ? buildIdOf(temporal) : undefined,
      /** The ways in which the embedded server's program may be installed, in the order in which they are tried. */
      installers: temporal.installers.filter((name) => name !== 'sdk' || temporal.maySdkInstall),
      stackTraces: temporal.stackTraces,
    },
    /** The catalog's database. */
    database: databaseOf(settings.database ?? `sqlite:${path.join(dataDir, 'catalog.db')}`, sqliteSync),
    /** The synchronous mode of the embedded Temporal's SQLite. */
    sqliteSync,
    /** The warnings at start about variables that look like settings and are none. */
    warnings: unknownVariables(env),
    /** Whether `EVERTURN_API_KEY` is set, which is the key of a client. */
    hasClientKey: env[CLIENT_KEY] !== undefined,
  };
}

function oidcOf({ issuer, audience, ...claims }: Settings['oidc']) {
  if (issuer === undefined && audience === undefined) return undefined;
  if (issuer === undefined || audience === undefined) {
    throw new ConfigError('EVERTURN_OIDC_ISSUER and EVERTURN_OIDC_AUDIENCE must be set together');
  }
  return { issuer, audience, ...claims };
}

function databaseOf(url: string, sync: SqliteSync): Database {
  if (!url.startsWith('sqlite:')) return { kind: 'postgres', url };
  return { kind: 'sqlite', file: path.resolve(url.slice('sqlite:'.length)), sync };
}

/**
 * The names of all variables that are read, except for those that a client reads itself: TLS and API key of Temporal,
 * region and credentials of AWS.
 */
export const CONFIG_VARIABLES: readonly string[] = Object.keys(schema.shape);

/** Each may also be in a file: see `secretVariable`. */
const SECRETS = new Set([
  'EVERTURN_API_KEYS',
  'EVERTURN_ENCRYPTION_KEYS',
  'OPENAI_API_KEY',
  'DATABASE_URL',
  'REDIS_URL',
  'TEMPORAL_API_KEY',
]);

const CLIENT_KEY = 'EVERTURN_API_KEY';

/** Variables of clients and of the Compose file, whose environment a server may have, too. */
const OF_OTHERS = [CLIENT_KEY, 'EVERTURN_FILES', 'EVERTURN_KEY', 'EVERTURN_PUBLISH', 'EVERTURN_URL'];

/** The warnings about unknown variables. They are no errors: they may be of another version, or of another program. */
function unknownVariables(env: Record<string, string>): string[] {
  const settings = [...CONFIG_VARIABLES, ...[...SECRETS].map((name) => `${name}_FILE`)];
  const known = new Set([...settings, ...OF_OTHERS]);
  return Object.keys(env)
    .filter((name) => name.startsWith('EVERTURN_') && !known.has(name))
    .map((name) => {
      const near = nearestName(name, settings);
      return `${name} is not a setting of this server${near === undefined ? '' : `: did you mean ${near}?`}`;
    });
}

function secretsOf(
  settings: Pick<Settings, 'apiKeys' | 'encryptionKeys'>,
  env: NodeJS.ProcessEnv,
): (string | undefined)[] {
  const passwords = [env['DATABASE_URL'], env['REDIS_URL']].map((url) => url && URL.parse(url)?.password);
  return [
    ...settings.apiKeys.map(({ key }) => key),
    ...settings.encryptionKeys.map(({ key }) => key.toString('base64').replace(/=$/, '')),
    env['OPENAI_API_KEY'],
    env['TEMPORAL_API_KEY'],
    env['AWS_SECRET_ACCESS_KEY'],
    env['AWS_SESSION_TOKEN'],
    ...passwords.flatMap((password) => (password ? [password, decodeURIComponent(password)] : [])),
  ];
}

/** The variables that are not empty, which counts as unset, as in `FOO= npm start`, with the secrets that are in files. */
function withSecrets(env: NodeJS.ProcessEnv): Record<string, string> {
  const secrets = [...SECRETS].map((name) => [name, secretVariable(env, name)]);
  const set: Record<string, string> = {};
  for (const [name = '', value] of [...Object.entries(env), ...secrets]) if (value) set[name] = value;
  return set;
}

/** The settings that standalone processes must share, and which therefore have no default. */
const SHARED: [string, string][] = [
  ['TEMPORAL_ADDRESS', 'the Temporal server that the processes of this Everturn share'],
  ['DATABASE_URL', 'the database that they share'],
  ['REDIS_URL', 'the Redis that carries text to readers as it is written'],
];

/** @throws ConfigError */
function checkShared(env: Record<string, string>, role: ProcessRole): void {
  // A kernel host calls no model, and nothing that it does is shown as it is written.
  const isKernelHost = role === 'kernel-host';
  const shared = SHARED.filter(([name]) => !(isKernelHost && name === 'REDIS_URL'));
  const missing = shared
    .filter(([name]) => env[name] === undefined)
    .map(([name, what]) => `${name} must be set: ${what}`);
  const models = ['OPENAI_API_KEY', 'OPENAI_BASE_URL', 'EVERTURN_MODEL_PROVIDERS'];
  if (!isKernelHost && !models.some((name) => env[name] !== undefined)) {
    missing.push(
      'OPENAI_API_KEY (or OPENAI_BASE_URL, or EVERTURN_MODEL_PROVIDERS) must be set: only everturn start includes the demo model',
    );
  }
  if (missing.length === 0) return;
  const hint = 'everturn start runs everything in one process and requires none of these';
  throw new ConfigError(
    [`everturn ${role} is one of several processes that share settings`, ...missing, hint].join('\n'),
  );
}

/** @throws ConfigError */
function checkKernels({ kernels, host, apiKeys, oidc }: Pick<Settings, 'kernels' | 'host' | 'apiKeys' | 'oidc'>): void {
  if (kernels.python !== undefined && kernels.requirements !== undefined) {
    throw new ConfigError(
      'EVERTURN_KERNEL_REQUIREMENTS adds packages to the environment that Everturn builds, and EVERTURN_KERNEL_PYTHON ' +
        'replaces it: install the packages there, or set only one of them',
    );
  }
  const isOnlyOurs = isLoopback(host) && apiKeys.length === 0 && oidc.issuer === undefined;
  if (kernels.sandbox !== 'none' || isOnlyOurs || kernels.acceptsNoSandbox) return;
  throw new ConfigError(
    'EVERTURN_KERNEL_SANDBOX=none lets the code of agents do all that the server may: use auto, or accept that with ' +
      'EVERTURN_KERNEL_SANDBOX_NONE_ACCEPTED=true',
  );
}

/** @throws ConfigError */
function buildIdOf({ buildId, taskQueue }: Settings['temporal']): string | undefined {
  if (buildId === undefined || !/[.:]/.test(taskQueue)) return buildId;
  throw new ConfigError(
    'EVERTURN_TASK_QUEUE cannot contain . or : together with EVERTURN_BUILD_ID, because it is also the name of ' +
      `Temporal's worker deployment (got ${JSON.stringify(taskQueue)})`,
  );
}

function externalTemporal(env: Record<string, string>): ClientConnectConfig {
  try {
    return loadClientConnectConfig({ disableFile: true, overrideEnvVars: env });
  } catch (error) {
    throw new ConfigError(`TEMPORAL_*: ${errorMessage(error)}`, { cause: error });
  }
}

/** Whether a name or an IP address is loopback, which other machines cannot reach. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}
