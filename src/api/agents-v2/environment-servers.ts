import { ApiError } from '../http/errors.ts';
import type { PathInRequest } from './errors.ts';
import type { FullAgent } from './wire/agent.ts';
import type { Environment } from './wire/environment.ts';

/** The MCP servers that the operator has registered for kinds of environments. */
export interface EnvironmentServers {
  /** The name of the server for a kind; undefined if there is none. */
  environmentServer(kind: Environment['kind']): string | undefined;
}

/** Settings for the service behind an environment, for which MCP servers have no request. */
const UNSUPPORTED = [
  'session_id',
  'vault_id',
  'browser_profile_id',
  'use_default_browser_profile',
  'persist_browser_profile',
  'network',
  'storage',
] as const;

/** The settings of an environment that the model sees. The others are settings of the server. */
const SHOWN = new Set(['mode', 'settle_s', 'screenshot_max_width', 'image']);

/** @throws ApiError if one of an agent's environments cannot be provided as it is defined */
export function checkEnvironments(
  { environments }: FullAgent,
  registry: EnvironmentServers,
  pathOf: PathInRequest,
): void {
  for (const [i, environment] of environments.entries()) {
    const { kind } = environment;
    if (registry.environmentServer(kind) === undefined) {
      const message =
        `this server provides no environment of the kind ${kind}: ask its operator to register an MCP server with ` +
        `"environments": ["${kind}"] in EVERTURN_MCP_SERVERS`;
      throw new ApiError('feature_not_available', message, { param: pathOf(`environments.${i}`) });
    }
    const settings: Record<string, unknown> = environment;
    const field = UNSUPPORTED.find((name) => (settings[name] ?? false) !== false);
    if (field === undefined) continue;
    const message = `${field} is not available for environments of this server: omit it`;
    throw new ApiError('feature_not_available', message, { param: pathOf(`environments.${i}.${field}`) });
  }
}

/** The note on an environment for the model, which has the environment's tools. */
export function environmentNote(environment: Environment): string {
  const { id, kind } = environment;
  const shown = Object.fromEntries(
    Object.entries(environment).filter(([name, value]) => SHOWN.has(name) && value !== null),
  );
  return [
    `Your tools control an environment of the kind "${kind}" with the id ${JSON.stringify(id)}.`,
    ...(environment.kind === 'web' ? [`Begin at ${environment.start_url}.`] : []),
    ...(Object.keys(shown).length > 0 ? [`Its settings: ${JSON.stringify(shown)}.`] : []),
  ].join(' ');
}
