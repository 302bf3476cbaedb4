import type { SharedWithServer } from '../spec/agent-spec.ts';
import type { McpEndpoint } from './registry.ts';
import { takesSignIn } from './sign-in-required.ts';

/** What the client of a run gives to its MCP servers: the JSON in `run_secrets`. */
export interface ServerSecrets {
  /**
   * The headers of all requests to a server, in the order of the toolkits. They do not have the names of the servers: those
   * depend on the other servers of a registered agent, which may have changed when an interrupted request is repeated.
   */
  headers: Record<string, string>[];
  /** The parts of the run's context that servers are sent. */
  context: Record<string, unknown>;
}

/** A server as a run uses it. */
export interface ServerForRun {
  endpoint: McpEndpoint;
  /** The parts of the context that its calls contain. */
  context?: Record<string, unknown>;
}

/**
 * A server with the values of a run; otherwise why the run cannot use it, as a predicate that continues after its name.
 * `secrets` are undefined once the run has ended.
 */
export function withSecrets(
  endpoint: McpEndpoint,
  { headers: index, contextKeys }: SharedWithServer,
  { secrets, sessionId }: { secrets: ServerSecrets | undefined; sessionId: string },
): ServerForRun | { refusal: string } {
  if (!secrets) return { refusal: 'was given credentials or a context by a run that has ended' };
  const context = contextKeys && contextParts(secrets.context, contextKeys);
  if (index === undefined) return { endpoint, ...(context && { context }) };
  // The registration may have changed since the request.
  if (!takesSignIn(endpoint)) return { refusal: NO_CREDENTIALS };
  const headers = secrets.headers[index];
  return {
    endpoint: { ...endpoint, headers: { ...endpoint.headers, ...headers }, credentialsOf: sessionId },
    ...(context && { context }),
  };
}

/** Why a server to which users do not sign in by themselves takes no credentials of a run, either. */
export const NO_CREDENTIALS = 'is a program, or has credentials of the operator: it takes none of a run';

/** The parts of a context with these keys, as far as it has them. */
export function contextParts(context: Record<string, unknown>, keys: string[]): Record<string, unknown> {
  return Object.fromEntries(keys.filter((key) => Object.hasOwn(context, key)).map((key) => [key, context[key]]));
}
