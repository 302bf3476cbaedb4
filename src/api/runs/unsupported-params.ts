import { refusal, type Place } from './errors.ts';
import type { AgentChanges } from './wire/agent-params.ts';

/** Checks that this server supports what a run says of its agent. @throws ApiError `unsupported_part` */
export function requireSupportedParams({ tools }: AgentChanges, root: Place): void {
  const search = (tools ?? []).findIndex(({ type }) => type === 'web_search');
  if (search >= 0) {
    const message = 'web_search is not supported by this server yet: leave it out';
    throw refusal('unsupported_part', [...root, 'tools', search], message);
  }
}
