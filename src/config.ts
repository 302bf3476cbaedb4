import { isIP } from 'node:net';
import { homedir } from 'node:os';
import path from 'node:path';
import { loadClientConnectConfig, type ClientConnectConfig } from '@temporalio/envconfig';
import { z } from 'zod';
import { ROLES, SUBJECT_NAME, subjectNamed, type Caller, type Role } from './core/subject.ts';
import type { S3Location } from './blobs/s3-blob-store.ts';
import { subjectBudget, type SubjectBudget } from './spec/subject-budget.ts';
import type { Database } from './catalog/database.ts';
import type { SqliteSync } from './catalog/sqlite.ts';
import type { EncryptionKey } from './encryption/cipher.ts';
import { registerSecrets } from './lib/redact.ts';
import { INSTALLER_NAMES, type InstallerName } from './temporal-server/installers.ts';
import { errorMessage, StartupError } from './lib/errors.ts';
import { nearestName } from './lib/nearest-name.ts';
import { DEFAULT_STREAM_LIMITS, type StreamLimits } from './mcp/stream-budget.ts';
import { secretVariable } from './lib/secret-variable.ts';
import { MAX_SILENCE_SECONDS } from './models/provider.ts';

/**
 * All of the server's settings, from the environment, validated. The variables are documented in docs/configuration.md;
 * a test compares the two.
 */
export interface Config {
  host: string;
  port: number;
  /** Where users reach the API, through proxies; unset: only on this machine, if `host` is loopback. */
  publicUrl: string | undefined;
  /** The port on which an API serves its metrics without a key; unset: only on its own port, with a key. */
  metricsPort: number | undefined;
  /** The port on which a standalone worker serves its health and metrics; unset: none. */
  workerPort: number | undefined;
  /** Folder for everything that the server stores itself: catalog, the embedded Temporal's database, blobs by default. */
  dataDir: string;
  /** Where blobs are stored; unset: in `dataDir`. */
  blobs: S3Location | undefined;
  /** Folder for what can be downloaded or built again, such as the Temporal CLI. */
  cacheDir: string;
  /** API keys in addition to those in the catalog. */
  apiKeys: { key: string; caller: Caller }[];
  /** Stored data is encrypted under the first key; without keys it is not encrypted. */
  encryptionKeys: EncryptionKey[];
  /** Whether unencrypted commands from Temporal are accepted although there are keys. */
  acceptsUnencrypted: boolean;
  /** The OpenID Connect provider whose tokens are accepted. */
  oidc:
    | {
        issuer: string;
        /** The audience that tokens must have. */
        audience: string;
        /** The claims with the name and the roles of the bearer. */
        nameClaim: string;
        roleClaim: string;
        /** The role of each value of the role claim. */
        roles: ReadonlyMap<unknown, Role>;
      }
    | undefined;
  /** Folder of agent files that are loaded at start. */
  agentsDir: string | undefined;
  /** Folders of skills. */
  skillFolders: string[];
  /** File that registers MCP servers by name. */
  mcpServersFile: string | undefined;
  /** Whether URLs from clients may resolve to private or loopback addresses. Unset: only while there are no keys. */
  allowPrivateUrls: boolean | undefined;
  logLevel: (typeof LOG_LEVELS)[number];
  /** Whether traces are recorded. OpenTelemetry reads its other settings itself. */
  tracing: boolean;
  openai: { apiKey: string | undefined; baseUrl: string | undefined };
  /** File that registers model providers by name. */
  modelProvidersFile: string | undefined;
  /** The model of the agent `demo`. */
  demoModel: string;
  /** The model of agents of the Agents API v2 that name none. */
  defaultModel: string | undefined;
  temporal: {
    /** The configured server; unset: an embedded one. */
    external: ClientConnectConfig | undefined;
    namespace: string;
    taskQueue: string;
    /** The version of a standalone worker, for Temporal's worker versioning; unset: it is not used. */
    buildId: string | undefined;
    /** The ways in which the embedded server's program may be installed, in the order in which they are tried. */
    installers: InstallerName[];
    /** Whether workers answer queries for the stacks of workflows. */
    stackTraces: boolean;
  };
  /** The Redis that connects the processes of one Everturn; the URL may contain a password. */
  redisUrl: string | undefined;
  /** The catalog's database. */
  database: Database;
  /** The synchronous mode of the embedded Temporal's SQLite. */
  sqliteSync: SqliteSync;
  model: {
    /** A model call that has received no piece of the answer for this long is retried. */
    firstChunkSeconds: number;
    /** The same after a piece of it. */
    idleSeconds: number;
    /** How long a failing model call is retried before the turn ends in error. */
    retrySeconds: number;
  };
  tool: {
    /** How long one tool call may run. */
    timeoutSeconds: number;
    /** A worker without a heartbeat for this long is considered dead, and its at-most-once tool calls lost. */
    heartbeatSeconds: number;
  };
  /** What an MCP server may send in a minute of its own accord. */
  mcp: StreamLimits;
  /** Admission limits. 0 is no limit; unset limits depend on whether there are keys: see `limitsInForce`. */
  limits: {
    /** Requests of one subject. */
    requestsPerMinute: number | undefined;
    /** Requests with an unknown key, from one address. */
    unknownKeysPerMinute: number | undefined;
    /** Concurrent turns in the sessions of one subject. */
    turnsPerSubject: number | undefined;
    /** Concurrent turns. */
    turns: number | undefined;
    /** Open event streams of one subject in one process. */
    streamsPerSubject: number | undefined;
    /** Open event streams in one process. */
    streams: number | undefined;
    /** Slots of agent sessions that one subject may take. */
    agentSessionsPerSubject: number | undefined;
    /** What the sessions of one subject store, in MiB. */
    storedMegabytesPerSubject: number | undefined;
  };
  /** Addresses or networks of proxies whose X-Forwarded-For header is trusted. */
  trustedProxies: string[];
  /** What the turns in the sessions of each subject may use in a day or a month, of UTC; unset: no limit. */
  subjectBudget: SubjectBudget | undefined;
  /** How long one turn may run. */
  turnSeconds: number;
  /** After how long at rest, without a command, the workflow of a session ends. */
  sessionIdleSeconds: number;
  /** How many sub-agents of one turn run at once. */
  subAgents: number;
  /** How many sessions of the Agents API v2 work or wait for results at once; further ones wait in a queue. */
  agentSessions: number;
  /** After how many days an ended run is deleted, unless its agent says; 0: never. */
  runRetentionDays: number;
  /** How long running tool calls may take to finish when the server stops. */
  shutdownSeconds: number;
  /** What is said at start of variables that look like settings and are none. */
  warnings: string[];
  /** Whether `EVERTURN_API_KEY` is set, which is the key of a client. */
  hasClientKey: boolean;
}

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

/** A setting is invalid; the message names the variable and its valid values. */
export class ConfigError extends StartupError {
  static {
    this.prototype.name = 'ConfigError';
  }
}

/** Whether a process is a whole Everturn (`start`) or one part of it. */
export type ProcessRole = 'start' | 'api' | 'worker';

/** @throws ConfigError, or StartupError for the file of a secret */
export function loadConfig(given: NodeJS.ProcessEnv = process.env, role: ProcessRole = 'start'): Config {
  const env = withSecrets(given);
  const parsed = schema.safeParse(env);
  if (!parsed.success) {
    const lines = parsed.error.issues.map(({ path: [name], message }) => {
      const shown = SECRETS.has(String(name)) ? '' : ` (got ${JSON.stringify(env[String(name)])})`;
      return `${String(name)} ${message}${shown}`;
    });
    throw new ConfigError(lines.join('\n'));
  }
  const vars = parsed.data;
  registerSecrets(secretsOf(vars, env));
  if (role !== 'start') checkShared(vars, role);
  const dataDir = path.resolve(vars.EVERTURN_DATA);
  // An embedded Temporal loses its last commits together with the catalog; an external Temporal would still have them.
  const sqliteSync = vars.EVERTURN_SQLITE_SYNC ?? (vars.TEMPORAL_ADDRESS ? 'full' : 'normal');
  return {
    host: vars.EVERTURN_HOST,
    port: vars.EVERTURN_PORT,
    publicUrl: vars.EVERTURN_PUBLIC_URL,
    metricsPort: vars.EVERTURN_METRICS_PORT,
    workerPort: vars.EVERTURN_WORKER_PORT,
    dataDir,
    blobs: vars.EVERTURN_BLOBS && {
      ...vars.EVERTURN_BLOBS,
      endpoint: vars.AWS_ENDPOINT_URL_S3 ?? vars.AWS_ENDPOINT_URL,
    },
    cacheDir: path.join(vars.XDG_CACHE_HOME ?? path.join(homedir(), '.cache'), 'everturn'),
    apiKeys: vars.EVERTURN_API_KEYS,
    encryptionKeys: vars.EVERTURN_ENCRYPTION_KEYS,
    acceptsUnencrypted: vars.EVERTURN_ACCEPT_UNENCRYPTED,
    oidc: oidcOf(vars),
    agentsDir: vars.EVERTURN_AGENTS && path.resolve(vars.EVERTURN_AGENTS),
    skillFolders: vars.EVERTURN_SKILLS.map((folder) => path.resolve(folder)),
    mcpServersFile: vars.EVERTURN_MCP_SERVERS && path.resolve(vars.EVERTURN_MCP_SERVERS),
    // A worker does not know whether the API has keys in its environment.
    allowPrivateUrls: vars.EVERTURN_ALLOW_PRIVATE_URLS ?? (role === 'worker' ? false : undefined),
    logLevel: vars.LOG_LEVEL,
    tracing:
      !vars.OTEL_SDK_DISABLED &&
      (vars.OTEL_EXPORTER_OTLP_ENDPOINT ?? vars.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) !== undefined,
    openai: { apiKey: vars.OPENAI_API_KEY, baseUrl: vars.OPENAI_BASE_URL },
    modelProvidersFile: vars.EVERTURN_MODEL_PROVIDERS && path.resolve(vars.EVERTURN_MODEL_PROVIDERS),
    demoModel: vars.EVERTURN_DEMO_MODEL,
    defaultModel: vars.EVERTURN_DEFAULT_MODEL,
    temporal: {
      external: vars.TEMPORAL_ADDRESS ? externalTemporal(env) : undefined,
      namespace: vars.TEMPORAL_NAMESPACE ?? (vars.TEMPORAL_ADDRESS ? 'default' : 'everturn'),
      taskQueue: vars.EVERTURN_TASK_QUEUE,
      // `everturn start` replaces its only worker, so turns that stay with a version would wait for ever.
      buildId: role === 'worker' ? buildIdOf(vars) : undefined,
      installers: vars.EVERTURN_TEMPORAL_INSTALL.filter((name) => name !== 'sdk' || vars.EVERTURN_DOWNLOAD_TEMPORAL),
      stackTraces: vars.EVERTURN_WORKFLOW_STACK_TRACES,
    },
    redisUrl: vars.REDIS_URL,
    database: databaseOf(vars.DATABASE_URL ?? `sqlite:${path.join(dataDir, 'catalog.db')}`, sqliteSync),
    sqliteSync,
    model: {
      firstChunkSeconds: vars.EVERTURN_MODEL_FIRST_CHUNK_SECONDS,
      idleSeconds: vars.EVERTURN_MODEL_IDLE_SECONDS,
      retrySeconds: vars.EVERTURN_MODEL_RETRY_SECONDS,
    },
    tool: {
      timeoutSeconds: vars.EVERTURN_TOOL_TIMEOUT_SECONDS,
      heartbeatSeconds: vars.EVERTURN_TOOL_HEARTBEAT_SECONDS,
    },
    mcp: {
      megabytesPerMinute: vars.EVERTURN_MCP_MEGABYTES_PER_MINUTE,
      messagesPerMinute: vars.EVERTURN_MCP_MESSAGES_PER_MINUTE,
    },
    limits: {
      requestsPerMinute: vars.EVERTURN_REQUESTS_PER_MINUTE,
      unknownKeysPerMinute: vars.EVERTURN_UNKNOWN_KEYS_PER_MINUTE,
      turnsPerSubject: vars.EVERTURN_TURNS_PER_SUBJECT,
      turns: vars.EVERTURN_TURNS,
      streamsPerSubject: vars.EVERTURN_STREAMS_PER_SUBJECT,
      streams: vars.EVERTURN_STREAMS,
      agentSessionsPerSubject: vars.EVERTURN_AGENT_SESSIONS_PER_SUBJECT,
      storedMegabytesPerSubject: vars.EVERTURN_STORED_MEGABYTES_PER_SUBJECT,
    },
    trustedProxies: vars.EVERTURN_TRUSTED_PROXIES,
    subjectBudget: vars.EVERTURN_SUBJECT_BUDGET,
    turnSeconds: vars.EVERTURN_TURN_TIMEOUT_SECONDS,
    sessionIdleSeconds: vars.EVERTURN_SESSION_IDLE_SECONDS,
    subAgents: vars.EVERTURN_SUB_AGENTS,
    agentSessions: vars.EVERTURN_AGENT_SESSIONS,
    runRetentionDays: vars.EVERTURN_RUN_RETENTION_DAYS,
    shutdownSeconds: vars.EVERTURN_SHUTDOWN_SECONDS,
    warnings: unknownVariables(env),
    hasClientKey: env[CLIENT_KEY] !== undefined,
  };
}

/** Node's timers have a limit of 2^31 ms, and some are set to a minute more than the configured time. */
export const MAX_SECONDS = 24 * 86_400;

/** For timers of Temporal, which have no such limit. */
const TEN_YEARS_SECONDS = 3_650 * 86_400;

const seconds = (defaultSeconds: number, max = MAX_SECONDS) =>
  z.coerce
    .number({ error: 'must be a number of seconds' })
    .positive({ error: 'must be a positive number of seconds' })
    .max(max, { error: `must be at most ${max} seconds${max >= MAX_SECONDS ? `, ${max / 86_400} days` : ''}` })
    .default(defaultSeconds);

const limit = z.coerce
  .number({ error: 'must be a whole number, 0 for no limit' })
  .int({ error: 'must be a whole number, 0 for no limit' })
  .min(0, { error: 'must be a whole number, 0 for no limit' })
  .optional();

const SUB_AGENTS_RULE = 'must be a whole number from 1 to 20';

const RUN_RETENTION_RULE = 'must be a whole number from 0 to 36500';
const AGENT_SESSIONS_RULE = 'must be a whole number from 1 to 10000';

const MCP_LIMIT_RULE = 'must be a whole number from 1 to 1000000';

const mcpLimit = z.coerce
  .number({ error: MCP_LIMIT_RULE })
  .int({ error: MCP_LIMIT_RULE })
  .min(1, { error: MCP_LIMIT_RULE })
  .max(1_000_000, { error: MCP_LIMIT_RULE });

const proxies = z
  .string()
  .transform((value) => value.split(',').map((one) => one.trim()))
  .pipe(
    z.array(z.string().refine(isNetwork, { error: 'must be addresses or networks such as 10.0.0.0/8, with commas' })),
  )
  .default([]);

const folders = z
  .string()
  .transform((value) => value.split(',').map((one) => one.trim()))
  .pipe(z.array(z.string().min(1, { error: 'must be folders, with commas between them' })))
  .default([]);

const INSTALLERS_RULE = `must be some of ${INSTALLER_NAMES.join(', ')}, each once, with commas, in the order in which they are tried`;

const installers = z
  .string()
  .transform((value) => value.split(',').map((one) => one.trim()))
  .pipe(
    z
      .array(z.enum(INSTALLER_NAMES, { error: INSTALLERS_RULE }))
      .refine((names) => new Set(names).size === names.length, { error: INSTALLERS_RULE }),
  )
  .default([...INSTALLER_NAMES]);

function isNetwork(value: string): boolean {
  const [address = '', prefix = '0', ...more] = value.split('/');
  const bits = { 4: 32, 6: 128 }[isIP(address)] ?? -1;
  return more.length === 0 && /^\d{1,3}$/.test(prefix) && Number(prefix) <= bits;
}

const url = z.url({ protocol: /^https?$/, error: 'must be an http or https URL' });

const publicUrl = url
  .refine((value) => !/[?#@]/.test(value), { error: 'must have no user name, query or fragment' })
  .transform((value) => value.replace(/\/+$/, ''));

const flag = z
  .enum(['true', 'false', '1', '0'], { error: 'must be true or false' })
  .transform((value) => value === 'true' || value === '1');

const apiKeys = z
  .string()
  .transform((value, context): Config['apiKeys'] => {
    const seen = new Set<string>();
    return value.split(',').flatMap((entry) => {
      const [, name = '', role = 'user', key] = /^\s*([^:=]+)(?::(\w+))?=(\S{8,})\s*$/.exec(entry) ?? [];
      const known = ROLES.find((one) => one === role);
      if (!SUBJECT_NAME.test(name) || !known || !key || seen.has(key)) {
        context.addIssue({
          code: 'custom',
          message:
            'must be <name>[:<role>]=<key>[,<name>...], each key different and at least 8 characters long, ' +
            `the role one of ${ROLES.join(', ')}`,
        });
        return [];
      }
      seen.add(key);
      return [{ key, caller: { subject: subjectNamed(name), roles: [known] } }];
    });
  })
  .default([]);

const encryptionKeys = z
  .string()
  .transform((value, context): EncryptionKey[] => {
    const keys = value.split(',').flatMap((entry): EncryptionKey[] => {
      const [, id, base64] = /^\s*([\w.-]{1,32}):([A-Za-z0-9+/]{43}=?)\s*$/.exec(entry) ?? [];
      return id && base64 ? [{ id, key: Buffer.from(base64, 'base64') }] : [];
    });
    const ids = new Set(keys.map(({ id }) => id));
    if (keys.length === value.split(',').length && ids.size === keys.length) return keys;
    context.addIssue({
      code: 'custom',
      message:
        'must be <key id>:<32 bytes in base64>[,<key id>:...], each id different, of up to 32 letters, digits and . _ -; ' +
        '`openssl rand -base64 32` creates a key',
    });
    return [];
  })
  .default([]);

const databaseUrl = z.string().refine((value) => /^sqlite:./.test(value) || isPostgresUrl(value), {
  error: 'must be sqlite:<file> or postgresql://<user>:<password>@<host>:<port>/<database>, its parts percent-encoded',
});

function isPostgresUrl(value: string): boolean {
  try {
    const { protocol, username, password, pathname } = new URL(value);
    decodeURIComponent(`${username}${password}${pathname}`);
    return /^postgres(ql)?:$/.test(protocol) && pathname.length > 1;
  } catch {
    return false;
  }
}

function databaseOf(url: string, sync: SqliteSync): Database {
  if (!url.startsWith('sqlite:')) return { kind: 'postgres', url };
  return { kind: 'sqlite', file: path.resolve(url.slice('sqlite:'.length)), sync };
}

/** Names of buckets as S3 defines them; a prefix of plain names, so that no server or tool reads them differently. */
const BLOBS_URL = /^s3:\/\/([a-z\d][a-z\d.-]{1,61}[a-z\d])((?:\/[\w=-][\w.=-]*)*)\/?$/;

const blobsUrl = z
  .string()
  .regex(BLOBS_URL, {
    error:
      'must be s3://<bucket> or s3://<bucket>/<prefix>, of letters, digits and . _ - =; ' +
      'if it is not set, blobs are in the folder EVERTURN_DATA',
  })
  .transform((value) => {
    const [, bucket = '', prefix = ''] = BLOBS_URL.exec(value) ?? [];
    return { bucket, prefix: prefix.slice(1) };
  });

const redisUrl = z.string().refine(isRedisUrl, {
  error: 'must be redis://[[<user>]:<password>@]<host>[:<port>][/<database>], or rediss:// with TLS',
});

const port = z.coerce
  .number({ error: 'must be a port number, 0 to 65535' })
  .int({ error: 'must be a port number, 0 to 65535' })
  .min(0, { error: 'must be a port number, 0 to 65535' })
  .max(65_535, { error: 'must be a port number, 0 to 65535' });

const oidcRoles = z
  .string()
  .default(ROLES.map((role) => `${role}=${role}`).join())
  .transform((value, context): ReadonlyMap<unknown, Role> => {
    const pairs = value.split(',').flatMap((pair): [string, Role][] => {
      const [, claimed, name] = /^\s*(.+)=(\w+)\s*$/.exec(pair) ?? [];
      const role = ROLES.find((one) => one === name);
      if (claimed && role) return [[claimed, role]];
      context.addIssue({
        code: 'custom',
        message: `must be <value of the claim>=<role>[,...], the role one of ${ROLES.join(', ')}`,
      });
      return [];
    });
    return new Map(pairs);
  });

const schema = z.object({
  EVERTURN_HOST: z
    .string()
    .refine((host) => host === 'localhost' || isIP(host) !== 0, { error: 'must be an IP address or localhost' })
    .default('127.0.0.1'),
  EVERTURN_PORT: port.default(8080),
  EVERTURN_PUBLIC_URL: publicUrl.optional(),
  EVERTURN_METRICS_PORT: port.optional(),
  EVERTURN_WORKER_PORT: port.optional(),
  EVERTURN_DATA: z.string().default('.everturn'),
  EVERTURN_BLOBS: blobsUrl.optional(),
  EVERTURN_API_KEYS: apiKeys,
  EVERTURN_ENCRYPTION_KEYS: encryptionKeys,
  EVERTURN_ACCEPT_UNENCRYPTED: flag.default(false),
  EVERTURN_OIDC_ISSUER: url.optional(),
  EVERTURN_OIDC_AUDIENCE: z.string().optional(),
  EVERTURN_OIDC_NAME_CLAIM: z.string().default('preferred_username'),
  EVERTURN_OIDC_ROLE_CLAIM: z.string().default('roles'),
  EVERTURN_OIDC_ROLES: oidcRoles,
  EVERTURN_AGENTS: z.string().optional(),
  EVERTURN_SKILLS: folders,
  EVERTURN_MCP_SERVERS: z.string().optional(),
  EVERTURN_MCP_MEGABYTES_PER_MINUTE: mcpLimit.default(DEFAULT_STREAM_LIMITS.megabytesPerMinute),
  EVERTURN_MCP_MESSAGES_PER_MINUTE: mcpLimit.default(DEFAULT_STREAM_LIMITS.messagesPerMinute),
  EVERTURN_ALLOW_PRIVATE_URLS: flag.optional(),
  EVERTURN_DEMO_MODEL: z.string().default('gpt-5-mini'),
  EVERTURN_DEFAULT_MODEL: z.string().min(1).optional(),
  EVERTURN_TASK_QUEUE: z.string().default('everturn'),
  EVERTURN_BUILD_ID: z
    .string()
    .regex(/^[a-z\d][\w.-]{0,127}$/i, { error: 'must be 1 to 128 letters, digits and . _ -, such as an image tag' })
    .optional(),
  EVERTURN_MODEL_FIRST_CHUNK_SECONDS: seconds(600, MAX_SILENCE_SECONDS),
  EVERTURN_MODEL_IDLE_SECONDS: seconds(45, MAX_SILENCE_SECONDS),
  EVERTURN_MODEL_RETRY_SECONDS: seconds(300),
  EVERTURN_TOOL_TIMEOUT_SECONDS: seconds(600),
  EVERTURN_TOOL_HEARTBEAT_SECONDS: seconds(60),
  EVERTURN_TURN_TIMEOUT_SECONDS: seconds(86_400),
  EVERTURN_SESSION_IDLE_SECONDS: seconds(30 * 86_400, TEN_YEARS_SECONDS),
  EVERTURN_SUB_AGENTS: z.coerce
    .number({ error: SUB_AGENTS_RULE })
    .int({ error: SUB_AGENTS_RULE })
    .min(1, { error: SUB_AGENTS_RULE })
    .max(20, { error: SUB_AGENTS_RULE })
    .default(5),
  EVERTURN_RUN_RETENTION_DAYS: z.coerce
    .number({ error: RUN_RETENTION_RULE })
    .int({ error: RUN_RETENTION_RULE })
    .min(0, { error: RUN_RETENTION_RULE })
    .max(36_500, { error: RUN_RETENTION_RULE })
    .default(30),
  EVERTURN_AGENT_SESSIONS: z.coerce
    .number({ error: AGENT_SESSIONS_RULE })
    .int({ error: AGENT_SESSIONS_RULE })
    .min(1, { error: AGENT_SESSIONS_RULE })
    .max(10_000, { error: AGENT_SESSIONS_RULE })
    .default(100),
  EVERTURN_SHUTDOWN_SECONDS: seconds(20),
  EVERTURN_REQUESTS_PER_MINUTE: limit,
  EVERTURN_UNKNOWN_KEYS_PER_MINUTE: limit,
  EVERTURN_TURNS_PER_SUBJECT: limit,
  EVERTURN_TURNS: limit,
  EVERTURN_STREAMS_PER_SUBJECT: limit,
  EVERTURN_STREAMS: limit,
  EVERTURN_AGENT_SESSIONS_PER_SUBJECT: limit,
  EVERTURN_STORED_MEGABYTES_PER_SUBJECT: limit,
  EVERTURN_SUBJECT_BUDGET: subjectBudget.optional(),
  EVERTURN_TRUSTED_PROXIES: proxies,
  EVERTURN_TEMPORAL_INSTALL: installers,
  EVERTURN_DOWNLOAD_TEMPORAL: flag.default(true),
  EVERTURN_WORKFLOW_STACK_TRACES: flag.default(false),
  EVERTURN_SQLITE_SYNC: z.enum(['normal', 'full'], { error: 'must be normal or full' }).optional(),
  AWS_ENDPOINT_URL: url.optional(),
  AWS_ENDPOINT_URL_S3: url.optional(),
  DATABASE_URL: databaseUrl.optional(),
  LOG_LEVEL: z.enum(LOG_LEVELS, { error: `must be one of ${LOG_LEVELS.join(', ')}` }).default('info'),
  OTEL_EXPORTER_OTLP_ENDPOINT: url.optional(),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: url.optional(),
  OTEL_SDK_DISABLED: flag.optional(),
  EVERTURN_MODEL_PROVIDERS: z.string().optional(),
  OPENAI_API_KEY: z.string().optional(),
  OPENAI_BASE_URL: url.optional(),
  REDIS_URL: redisUrl.optional(),
  TEMPORAL_ADDRESS: z
    .string()
    .regex(/^([^:/\s[\]]+|\[[\da-f:.]+\]):\d+$/i, { error: 'must be <host>:<port>' })
    .optional(),
  TEMPORAL_NAMESPACE: z.string().optional(),
  XDG_CACHE_HOME: z.string().optional(),
});

function oidcOf(vars: z.infer<typeof schema>): Config['oidc'] {
  const { EVERTURN_OIDC_ISSUER: issuer, EVERTURN_OIDC_AUDIENCE: audience } = vars;
  if (issuer === undefined && audience === undefined) return undefined;
  if (issuer === undefined || audience === undefined) {
    throw new ConfigError('EVERTURN_OIDC_ISSUER and EVERTURN_OIDC_AUDIENCE must be set together');
  }
  const { EVERTURN_OIDC_NAME_CLAIM: nameClaim, EVERTURN_OIDC_ROLE_CLAIM: roleClaim, EVERTURN_OIDC_ROLES: roles } = vars;
  return { issuer, audience, nameClaim, roleClaim, roles };
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

/** Those are no errors: the variable may be of another version, or of another program. */
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

function secretsOf(vars: z.infer<typeof schema>, env: NodeJS.ProcessEnv): (string | undefined)[] {
  const passwords = [vars.DATABASE_URL, vars.REDIS_URL].map((url) => url && URL.parse(url)?.password);
  return [
    ...vars.EVERTURN_API_KEYS.map(({ key }) => key),
    ...vars.EVERTURN_ENCRYPTION_KEYS.map(({ key }) => key.toString('base64').replace(/=$/, '')),
    vars.OPENAI_API_KEY,
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
function checkShared(vars: z.output<typeof schema>, role: ProcessRole): void {
  const set = new Set(Object.entries(vars).flatMap(([name, value]) => (value === undefined ? [] : [name])));
  const missing = SHARED.filter(([name]) => !set.has(name)).map(([name, what]) => `${name} must be set: ${what}`);
  if (!['OPENAI_API_KEY', 'OPENAI_BASE_URL', 'EVERTURN_MODEL_PROVIDERS'].some((name) => set.has(name))) {
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
function buildIdOf({ EVERTURN_BUILD_ID: id, EVERTURN_TASK_QUEUE: queue }: z.output<typeof schema>): string | undefined {
  if (id === undefined || !/[.:]/.test(queue)) return id;
  throw new ConfigError(
    'EVERTURN_TASK_QUEUE cannot contain . or : together with EVERTURN_BUILD_ID, because it is also the name of ' +
      `Temporal's worker deployment (got ${JSON.stringify(queue)})`,
  );
}

/** Also rejects invalid percent-encoding, which the client would report later and less clearly. */
function isRedisUrl(value: string): boolean {
  const { protocol = '', hostname, pathname = '', href = '' } = URL.parse(value) ?? {};
  return /^rediss?:$/.test(protocol) && !!hostname && /^(\/\d*)?$/.test(pathname) && !/%(?![\da-f]{2})/i.test(href);
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
