import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { ConfigError } from '../config.ts';
import { sha256 } from '../hash.ts';
import type { McpServer } from '../wire/agent-spec.ts';

/** An MCP server: where it is, and what we know of it beside what it says itself. */
export interface McpEndpoint {
  /** Stable for the same server: the name of a registered one, a digest of the URL of an inline one. */
  id: string;
  /** As the agent calls it. */
  name: string;
  url: string;
  headers: Record<string, string>;
  /** The operator vouches for it: it may be at a private address. */
  trusted: boolean;
  /** Tools that may run again with the same operation id: `@all` or names. */
  idempotentTools: readonly string[];
}

export type RegisteredServer = z.input<typeof registered>;

const registered = z.strictObject({
  url: z
    .url({ protocol: /^https?$/, error: 'must be an http or https URL' })
    .refine((url) => !hasCredentials(url), 'must not contain a user name or password: put them into headers'),
  headers: z
    .record(
      z.string().regex(/^[\w!#$%&'*+.^`|~-]+$/),
      z.string({ error: 'must be a string' }).regex(/^[\t\x20-\x7e\x80-\xff]*$/, 'must be the value of an HTTP header'),
      { error: ({ code }) => (code === 'invalid_key' ? 'is not the name of an HTTP header' : 'must be an object') },
    )
    .default({}),
  idempotent_tools: z.array(z.string().min(1), { error: 'must be a list of tool names, or ["@all"]' }).default([]),
});

const registryFile = z.strictObject({
  servers: z.record(z.string().min(1).max(128), registered, {
    error: 'must be an object of servers by name (1 to 128 characters)',
  }),
});

/** The MCP servers that agents may name instead of giving a URL. */
export class McpRegistry {
  readonly #servers = new Map<string, Omit<McpEndpoint, 'id' | 'name'>>();

  /** @throws z.ZodError */
  add(name: string, server: RegisteredServer): void {
    const { url, headers, idempotent_tools: idempotentTools } = registered.parse(server);
    this.#servers.set(name, { url, headers, idempotentTools, trusted: true });
  }

  /** Where to find the server that an agent asks for; undefined if none of that name is registered. */
  resolve(spec: McpServer): McpEndpoint | undefined {
    const { name } = spec;
    if (spec.type === 'inline') {
      const id = `inline-${sha256(spec.url).slice(0, 16)}`;
      return { id, name, url: spec.url, headers: {}, trusted: false, idempotentTools: [] };
    }
    const server = this.#servers.get(name);
    return server && { id: name, name, ...server };
  }
}

/**
 * Reads the file of `EVERTURN_MCP_SERVERS`: `{"servers": {"<name>": {"url", "headers"?, "idempotent_tools"?}}}`.
 * @throws ConfigError that names the file, the place in it and what should be there.
 */
export async function loadMcpRegistry(file: string | undefined): Promise<McpRegistry> {
  const registry = new McpRegistry();
  if (file === undefined) return registry;
  const { servers } = await readRegistryFile(file);
  for (const [name, server] of Object.entries(servers)) registry.add(name, server);
  return registry;
}

async function readRegistryFile(file: string): Promise<z.infer<typeof registryFile>> {
  const wrong = (problem: string): ConfigError => new ConfigError(`EVERTURN_MCP_SERVERS: ${file}: ${problem}`);
  let content: unknown;
  try {
    content = JSON.parse(await readFile(file, 'utf8'));
  } catch (error) {
    throw wrong(error instanceof SyntaxError ? `is not JSON: ${error.message}` : `can't be read: ${String(error)}`);
  }
  const parsed = registryFile.safeParse(content);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'the file'}: ${message}`);
  throw wrong(problems.join('\n'));
}

export function hasCredentials(url: string): boolean {
  const parsed = URL.parse(url);
  return parsed !== null && (parsed.username !== '' || parsed.password !== '');
}
