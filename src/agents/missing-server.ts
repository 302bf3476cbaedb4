import type { TurnError } from '../core/records/turn.ts';
import type { PreparedModelCall } from './prepare-model-call.ts';

/** Why a turn does not begin: a server that its agent requires is unavailable, or the user has to sign in to it first. */
export function missingServer({ spec, toolset, signIns }: PreparedModelCall): TurnError | undefined {
  const unsigned = signIns.map(({ name }) => ({ server: name, reason: 'it requires the user to sign in' }));
  const missing = [...toolset.unavailable, ...unsigned].find(({ server }) => spec.requiredServers?.includes(server));
  if (!missing) return undefined;
  const message = `The tools of the MCP server "${missing.server}" are unavailable: ${missing.reason}`;
  return { status: 'error', message, code: 'server_unavailable' };
}
