import { z } from 'zod';
import { ROLES } from '../core/subject.ts';
import { ConfigError } from '../config.ts';
import { httpHeaders, MAX_SECONDS } from '../setting-values.ts';
import { readSettingsFile } from '../lib/settings-file.ts';
import { namingUnknownKeys } from '../lib/unknown-keys.ts';
import { PROTOCOLS } from './protocols.ts';

/** A server of the file `EVERTURN_MCP_SERVERS`: an HTTP server, or a program that Everturn starts (stdio). */
export type RegisteredServer = z.input<typeof httpServer> | z.input<typeof stdioServer>;
type ParsedServer = (z.infer<typeof httpServer> | z.infer<typeof stdioServer>) & {
  /** Fields that other programs write, and that have no effect here. */
  foreign: string[];
};

/** The servers of a file. */
export interface RegistryFile {
  servers: Map<string, ParsedServer>;
  /** The names of servers that are in the file, but disabled. */
  disabled: string[];
  /** Entries of the file that have no effect, each with its path. */
  warnings: string[];
}
export type ClientCredentialsConfig = z.infer<typeof clientCredentials>;
export type AuthorizationCodeConfig = z.infer<typeof authorizationCode>;

const idempotentTools = z.array(z.string().min(1), { error: 'must be a list of tool names, or ["@all"]' }).default([]);

const credential = z.string({ error: 'must be a string' }).min(1, 'must not be empty');

const secretTarget = httpUrl().refine(
  isSecure,
  'must be an https URL, since the secret is sent there; http only on this machine',
);

const NO_TARGET =
  'needs a token_url, or the issuer whose token endpoint is discovered: the MCP server does not decide where the secret is sent';

const clientCredentials = z
  .strictObject({
    type: z.literal('client_credentials'),
    token_url: secretTarget.optional(),
    issuer: secretTarget.optional(),
    client_id: credential,
    client_secret: credential,
    scope: credential.optional(),
    resource: httpUrl().optional(),
    audience: credential.optional(),
  })
  .transform(({ token_url: tokenUrl, issuer, ...rest }, context) => {
    if (tokenUrl !== undefined && issuer !== undefined) {
      context.addIssue({ code: 'custom', message: 'has a token_url and an issuer: give it one of them' });
      return z.NEVER;
    }
    if (tokenUrl !== undefined) return { ...rest, token_url: tokenUrl, issuer: undefined };
    if (issuer !== undefined) return { ...rest, token_url: undefined, issuer };
    context.addIssue({ code: 'custom', message: NO_TARGET });
    return z.NEVER;
  });

/** The client with which users sign in to a server. */
const authorizationCode = z.strictObject({
  type: z.literal('authorization_code'),
  issuer: secretTarget,
  client_id: credential,
  client_secret: credential.optional(),
  scope: credential.optional(),
});

const auth = z.discriminatedUnion('type', [clientCredentials, authorizationCode], {
  error: 'must be client_credentials or authorization_code',
});

/**
 * Which callers share a connection that has a state at its server: the turns of one session, all sessions of one
 * subject, or all callers. Connections without a state are shared by all callers in any case.
 */
export type ConnectionIsolation = z.infer<typeof isolation>;

const isolation = z.enum(['session', 'subject', 'shared'], { error: 'must be session, subject or shared' });

/** Whether the calls of a message run in their order. */
const ordered = z.boolean({ error: 'must be true or false' });

/** Whether the replacement of a connection matters: the model is notified, and approvals are requested again. */
const stateful = z.boolean({ error: 'must be true or false' }).default(true);

function selectors(...classes: string[]) {
  const allowed = `must be a list of tool names and of ${classes.join(', ')}`;
  const selector = z.string({ error: allowed }).min(1);
  return z.array(
    selector.refine((one) => !one.startsWith('@') || classes.includes(one), allowed),
    { error: allowed },
  );
}

const drafts = `must be a list of roles (${ROLES.join(', ')}) and of subjects ("subject:<id>")`;

/** The kinds of environments of the Agents API v2, which MCP servers can provide. */
export const ENVIRONMENT_KINDS = ['web', 'desktop', 'android', 'workstation'] as const;

export type EnvironmentKind = (typeof ENVIRONMENT_KINDS)[number];

const kindRule = `must be a list of kinds of environments (${ENVIRONMENT_KINDS.join(', ')})`;

const environments = z.array(z.enum(ENVIRONMENT_KINDS, { error: kindRule }), { error: kindRule }).default([]);

/** See `ServerPolicy`. */
const policy = {
  drafts: z
    .array(
      z.string({ error: drafts }).refine((one) => /^subject:./.test(one) || ROLES.some((role) => role === one), drafts),
      { error: drafts },
    )
    .default([]),
  tools: selectors('@all', '@read-only').default(['@all']),
  require_approval_for_tools: selectors('@all', '@write', '@destructive', '@unannotated').optional(),
};

const TIMEOUT_RULE = 'must be a positive number: of seconds, or from 1000 on of milliseconds';
/** Some MCP hosts write seconds, others milliseconds. None has bounds of less than a second or more than 16 minutes. */
const MILLISECONDS_FROM = 1_000;

const timeout = z
  .number({ error: TIMEOUT_RULE })
  .positive({ error: TIMEOUT_RULE })
  .transform((value) => (value >= MILLISECONDS_FROM ? value : value * 1_000))
  .optional();

const SECONDS_RULE = `must be a number of seconds, from 1 to ${MAX_SECONDS} (24 days)`;

const seconds = z
  .number({ error: SECONDS_RULE })
  .min(1, { error: SECONDS_RULE })
  .max(MAX_SECONDS, { error: SECONDS_RULE });

const PROTOCOL_RULE = `must be a version of MCP: ${PROTOCOLS.join(', ')}`;

const protocol = z
  .string({ error: PROTOCOL_RULE })
  .refine((version) => PROTOCOLS.includes(version), PROTOCOL_RULE)
  .optional();

/** How long a program may do nothing: its state is part of conversations, which people continue after a night. */
const PROGRAM_IDLE_SECONDS = 86_400;

const httpServer = z.strictObject({
  url: httpUrl(),
  headers: httpHeaders,
  auth: auth.optional(),
  timeout,
  idle_seconds: seconds.optional(),
  protocol,
  idempotent_tools: idempotentTools,
  isolation: isolation.default('session'),
  ordered: ordered.default(false),
  stateful,
  environments,
  ...policy,
});

/** A string that the operating system accepts as an argument or a variable. */
const withoutNul = z.string({ error: 'must be a string' }).regex(/^[^\0]*$/, 'must not contain a NUL character');

const stdioServer = z.strictObject({
  command: withoutNul.min(1, 'must be the name or path of a program'),
  args: z.array(withoutNul, { error: 'must be a list of strings' }).default([]),
  env: z.record(z.string().min(1), withoutNul, { error: 'must be an object of strings' }).default({}),
  cwd: withoutNul.min(1, 'must be a folder').optional(),
  timeout,
  start_timeout_seconds: seconds.optional(),
  idle_seconds: seconds.default(PROGRAM_IDLE_SECONDS),
  protocol,
  idempotent_tools: idempotentTools,
  // One process per session is too much for a subject with many open sessions; one for all subjects would mix their state.
  isolation: isolation.default('subject'),
  // Most programs have a state, such as files or a page, which a read would find as it was before the writes.
  ordered: ordered.default(true),
  stateful,
  environments,
  ...policy,
});

/**
 * Fields that other MCP hosts write into their files, from which servers are copied, by what replaces them here. They
 * are no mistakes, but have no effect.
 */
const FOREIGN_FIELDS = new Map(
  Object.entries({
    'require_approval_for_tools says which tools need an approval': ['alwaysAllow', 'autoApprove', 'trust'],
    'tools says which tools agents may use': [
      'allowedTools',
      'disabledTools',
      'enabledTools',
      'excludeTools',
      'includeTools',
    ],
    'env has the variables of the program': ['envFile'],
    'auth says how to sign in to the server': ['oauth'],
    'programs run with the rights of Everturn': ['sandbox', 'sandboxEnabled'],
    'it is for other programs': [
      'author',
      'description',
      'dev',
      'gallery',
      'homepage',
      'icon',
      'iconPath',
      'icons',
      'name',
      'source',
      'tags',
      'title',
      'version',
      'watchPaths',
    ],
  }).flatMap(([instead, fields]) => fields.map((field): [string, string] => [field, instead])),
);

/** The fields in which MCP hosts write how a server is reached, and the words of each host for it. */
const KIND_FIELDS = ['type', 'transport', 'transportType'];
const KINDS = new Map<unknown, 'command' | 'url'>([
  ...['stdio', 'local'].map((word) => [word, 'command'] as const),
  ...['http', 'streamable-http', 'streamableHttp', 'streamable_http', 'sse', 'remote'].map(
    (word) => [word, 'url'] as const,
  ),
]);
const KIND_RULE = 'must be stdio for a command; http, streamable-http or sse for a url';

const NO_SERVERS = 'must be an object of servers by name (1 to 128 characters)';

const fields = z.record(z.string(), z.unknown(), { error: 'must be an object' });

const server = fields.transform(readServer);

/** Undefined for a disabled server, whose other fields are not read. */
const entry = fields.transform((value, context): ParsedServer | undefined =>
  isDisabled(value) ? undefined : readServer(value, context),
);

/** Distinguishes the two kinds by a field that only one of them has, so that errors refer to the intended kind. */
function readServer(value: Record<string, unknown>, context: z.core.$RefinementCtx): ParsedServer {
  const problem = (message: string, path: string[] = []): never => {
    context.addIssue({ code: 'custom', message, path });
    return z.NEVER;
  };
  const { disabled = false, enabled = true, ...rest } = value;
  for (const [name, flag] of Object.entries({ disabled, enabled })) {
    if (typeof flag !== 'boolean') return problem('must be true or false', [name]);
  }
  if ('url' in rest && 'command' in rest) return problem('has a url and a command: give it one of them');
  if (!('url' in rest) && !('command' in rest)) return problem('needs a url, or a command to start');
  for (const name of KIND_FIELDS.filter((field) => field in rest)) {
    const field = KINDS.get(rest[name]);
    if (field === undefined) return problem(KIND_RULE, [name]);
    if (!(field in rest)) return problem(`is ${JSON.stringify(rest[name])}, which needs a ${field}`, [name]);
  }
  const foreign = Object.keys(rest).filter((field) => FOREIGN_FIELDS.has(field));
  const known = new Set([...foreign, ...KIND_FIELDS]);
  const own = Object.fromEntries(Object.entries(rest).filter(([field]) => !known.has(field)));
  const parsed = ('url' in own ? httpServer : stdioServer).safeParse(own, { error: namingUnknownKeys });
  if (parsed.success && parsed.data.environments.length > 0 && parsed.data.isolation !== 'session') {
    return problem('a session has its environments to itself: set "isolation" to "session"');
  }
  if (parsed.success) return { ...parsed.data, foreign };
  for (const { message, path } of parsed.error.issues) context.addIssue({ code: 'custom', message, path });
  return z.NEVER;
}

function isDisabled(value: object): boolean {
  return ('disabled' in value && value.disabled === true) || ('enabled' in value && value.enabled === false);
}

const servers = z
  .record(z.string().min(1).max(128), entry, { error: NO_SERVERS })
  .superRefine((all, context) => {
    const providers = new Map<EnvironmentKind, string>();
    for (const [name, parsed] of Object.entries(all)) {
      for (const kind of parsed?.environments ?? []) {
        const other = providers.get(kind);
        if (other !== undefined) {
          const message = `${other} has the environments of the kind ${kind} already`;
          context.addIssue({ code: 'custom', path: [name, 'environments'], message });
        }
        providers.set(kind, name);
      }
    }
  })
  .optional();

const registryFile = z
  .strictObject({
    /** Values that VS Code asks the user for, and writes into its own files. */
    inputs: z.unknown().optional(),
    servers,
    /** The same in the files of most other hosts, and in the READMEs of servers. */
    mcpServers: servers,
  })
  .transform(({ inputs, ...either }, context) => {
    const problem = (path: string, message: string): never => {
      context.addIssue({ code: 'custom', path: [path], message });
      return z.NEVER;
    };
    if (either.servers && either.mcpServers) {
      return problem('mcpServers', 'stands beside servers: put all servers into one of them');
    }
    if (either.servers) return { inputs, key: 'servers', servers: either.servers };
    if (either.mcpServers) return { inputs, key: 'mcpServers', servers: either.mcpServers };
    return problem('servers', NO_SERVERS);
  });

/** @throws z.ZodError */
export function parseServer(value: RegisteredServer): ParsedServer {
  return server.parse(value);
}

/**
 * Reads the file of `EVERTURN_MCP_SERVERS`: `{"servers": {"<name>": {"url", …} or {"command", …}}}`, or `mcpServers`
 * instead of `servers`. `${NAME}` in a value is replaced by the variable NAME of `env`, so that the file needs no secrets;
 * the value is treated as a secret.
 * @throws ConfigError that names the file, the path in it and what is expected there, but never a value
 */
export async function readRegistryFile(file: string, env: NodeJS.ProcessEnv): Promise<RegistryFile> {
  const fail = (problem: string): ConfigError => new ConfigError(`EVERTURN_MCP_SERVERS: ${file}: ${problem}`);
  const read = await readSettingsFile(file, { env, schema: registryFile, fail, skips: isDisabled });
  const { key, servers: all, inputs } = read;
  const found: RegistryFile = { servers: new Map(), disabled: [], warnings: [] };
  const warn = (warning: string): void => void found.warnings.push(`EVERTURN_MCP_SERVERS: ${file}: ${warning}`);
  for (const [name, parsed] of Object.entries(all)) {
    if (parsed) found.servers.set(name, parsed);
    else found.disabled.push(name);
    if (!parsed) warn(`${key}.${name} is disabled: no agent can use it`);
    for (const field of parsed?.foreign ?? []) {
      warn(`${key}.${name}.${field} has no effect: ${FOREIGN_FIELDS.get(field)}`);
    }
  }
  if (inputs !== undefined) warn('inputs has no effect: write ${NAME} for the value of a variable');
  return found;
}

function httpUrl() {
  return z
    .url({ protocol: /^https?$/, error: 'must be an http or https URL' })
    .refine((url) => !hasCredentials(url), 'must not contain a user name or password: put them into headers');
}

export function hasCredentials(url: string): boolean {
  const parsed = URL.parse(url);
  return parsed !== null && (parsed.username !== '' || parsed.password !== '');
}

/** RFC 6749, section 3.2: credentials are sent over TLS only. */
export function isSecure(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === 'https:' || ['localhost', '127.0.0.1', '[::1]'].includes(hostname);
}
