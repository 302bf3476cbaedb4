import type { Face } from '../http/openapi.ts';
import { agentsV2Errors } from './errors.ts';

const PREFIX = '/api/v2';

/** The links to shared sessions. */
export const SHARE = '/share/api/v1/trajectories';

/** The Agents API v2. */
export const AGENTS_V2: Face = {
  title: 'Everturn: Agents API v2',
  description: 'Runs of agents as sessions, followed by long polling.',
  path: `${PREFIX}/openapi.json`,
  errors: agentsV2Errors,
};

/** The MCP endpoint, whose own errors are JSON-RPC's. */
export const MCP_PATH = '/mcp';

/** Whether a request is one of this API, by its URL. */
export function isAgentsV2(url: string): boolean {
  return [PREFIX, SHARE, MCP_PATH].some(
    (path) => url === path || url.startsWith(`${path}/`) || url.startsWith(`${path}?`),
  );
}
