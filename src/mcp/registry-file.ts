import { z } from 'zod';
import { ROLES } from '../core/subject.ts';
import { ConfigError } from '../config.ts';
import { readSettingsFile } from '../lib/settings-file.ts';
import { namingUnknownKeys } from '../lib/unknown-keys.ts';

/** A server of the file `EVERTURN_MCP_SERVERS`: an HTTP server, or a program that Everturn starts (stdio). */
export type RegisteredServer = z.input<typeof httpServer> | z.input<typeof stdioServer>;
export type ParsedServer = (z.infer<typeof httpServer> | z.infer<typeof stdioServer>) & {
  /** Fields that other programs write, and that have no effect here. */
  foreign: string[];
};
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
export type Isolation = 'session' | 'subject' | 'shared';

/** How a connection with a state is shared; `byDefault` applies if the file does not set it. */
function isolation(byDefault: Isolation) {
  return z.enum(['session', 'subject', 'shared'], { error: 'must be session, subject or shared' }).default(byDefault);
}

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

const httpServer = z.strictObject({
  url: httpUrl(),
  headers: z
    .record(
      z.string().regex(/^[\w!#$%&'*+.^`|~-]+$/),
      z.string({ error: 'must be a string' }).regex(/^[\t\x20-\x7e\x80-\xff]*$/, 'must be the value of an HTTP header'),
      { error: ({ code }) => (code === 'invalid_key' ? 'is not the name of an HTTP header' : 'must be an object') },
    )
    .default({}),
  auth: auth.optional(),
  idempotent_tools: idempotentTools,
  isolation: isolation('session'),
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
  idempotent_tools: idempotentTools,
  // One process per session is too much for a subject with many open sessions; one for all subjects would mix their state.
  isolation: isolation('subject'),
  environments,
  ...policy,
});

/**
 * Fields that other MCP hosts write into their files, from which servers are copied, by what stands for them here. They are
 * no mistakes, but what they ask for does not happen.
 */
const FOREIGN_FIELDS = new Map(
  Object.entries({
    'require_approval_for_tools says which tools need an approval': ['alwaysAllow', 'autoApprove', 'trust'],
    'remove a server that agents may not use': ['disabled', 'enabled'],
    'tools says which tools agents may use': ['allowedTools', 'disabledTools', 'excludeTools', 'includeTools'],
    'a server has a url or a command': ['transport', 'transportType', 'type'],
    'env has the variables of the program': ['envFile'],
    'auth says how to sign in to the server': ['oauth'],
    'EVERTURN_TOOL_TIMEOUT_SECONDS limits all calls of tools': ['timeout'],
    'it is for other programs': ['description', 'dev', 'gallery', 'icon', 'name', 'version', 'watchPaths'],
  }).flatMap(([instead, fields]) => fields.map((field): [string, string] => [field, instead])),
);

/** Distinguishes the two kinds by a field that only one of them has, so that errors refer to the intended kind. */
const server = z
  .record(z.string(), z.unknown(), { error: 'must be an object' })
  .transform((value, context): ParsedServer => {
    const problem = (message: string): never => {
      context.addIssue({ code: 'custom', message });
      return z.NEVER;
    };
    if ('url' in value && 'command' in value) return problem('has a url and a command: give it one of them');
    if (!('url' in value) && !('command' in value)) return problem('needs a url, or a command to start');
    const foreign = Object.keys(value).filter((field) => FOREIGN_FIELDS.has(field));
    const own = Object.fromEntries(Object.entries(value).filter(([field]) => !foreign.includes(field)));
    const parsed = ('url' in own ? httpServer : stdioServer).safeParse(own, { error: namingUnknownKeys });
    if (parsed.success && parsed.data.environments.length > 0 && parsed.data.isolation !== 'session') {
      return problem('a session has its environments to itself: set "isolation" to "session"');
    }
    if (parsed.success) return { ...parsed.data, foreign };
    for (const { message, path } of parsed.error.issues) context.addIssue({ code: 'custom', message, path });
    return z.NEVER;
  });

const registryFile = z.strictObject({
  /** Values that VS Code asks the user for, and writes into its own files. */
  inputs: z.unknown().optional(),
  servers: z
    .record(z.string().min(1).max(128), server, {
      error: 'must be an object of servers by name (1 to 128 characters)',
    })
    .superRefine((servers, context) => {
      const providers = new Map<EnvironmentKind, string>();
      for (const [name, { environments: kinds }] of Object.entries(servers)) {
        for (const kind of kinds) {
          const other = providers.get(kind);
          if (other !== undefined) {
            const message = `${other} has the environments of the kind ${kind} already`;
            context.addIssue({ code: 'custom', path: [name, 'environments'], message });
          }
          providers.set(kind, name);
        }
      }
    }),
});

/** @throws z.ZodError */
export function parseServer(value: RegisteredServer): ParsedServer {
  return server.parse(value);
}

/**
 * Reads the file of `EVERTURN_MCP_SERVERS`: `{"servers": {"<name>": {"url", …} or {"command", …}}}`. `${NAME}` in a value
 * is replaced by the variable NAME of `env`, so that the file needs no secrets; the value is treated as a secret.
 * `warnings`: what the file has that has no effect, each with its place.
 * @throws ConfigError that names the file, the path in it and what is expected there, but never a value
 */
export async function readRegistryFile(
  file: string,
  env: NodeJS.ProcessEnv,
): Promise<{ servers: Map<string, ParsedServer>; warnings: string[] }> {
  const fail = (problem: string): ConfigError => new ConfigError(`EVERTURN_MCP_SERVERS: ${file}: ${problem}`);
  const { servers, inputs } = await readSettingsFile(file, { env, schema: registryFile, fail });
  const ignored = Object.entries(servers).flatMap(([name, { foreign }]) =>
    foreign.map((field) => `servers.${name}.${field} has no effect: ${FOREIGN_FIELDS.get(field)}`),
  );
  if (inputs !== undefined) ignored.push('inputs has no effect: write ${NAME} for the value of a variable');
  const warnings = ignored.map((warning) => `EVERTURN_MCP_SERVERS: ${file}: ${warning}`);
  return { servers: new Map(Object.entries(servers)), warnings };
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
