import { isDeepStrictEqual } from 'node:util';
import { refusal, type Place } from './errors.ts';
import type { AgentChanges, Toolkit } from './wire/agent-params.ts';

/** What this server does not support yet, with the values that ask for nothing. Unset fields never do. */
const TOOLKIT_FIELDS: Record<string, readonly unknown[]> = {
  dynamic: [false],
};

/** Checks that this server supports what a run says of its agent. @throws ApiError `feature_not_available` or `unsupported_part` */
export function requireSupportedParams(params: AgentChanges, root: Place): void {
  const { tools, toolkits } = params;
  const search = (tools ?? []).findIndex(({ type }) => type === 'web_search');
  if (search >= 0) {
    const message = 'web_search is not supported by this server yet: leave it out';
    throw refusal('unsupported_part', [...root, 'tools', search], message);
  }
  toolkits?.forEach((toolkit: Toolkit, i) => requireUnset(toolkit, TOOLKIT_FIELDS, [...root, 'toolkits', i]));
}

function requireUnset(value: object, fields: Record<string, readonly unknown[]>, place: Place): void {
  for (const [field, given] of Object.entries(value)) {
    const harmless = fields[field];
    const isUsed =
      harmless && given !== null && given !== undefined && !harmless.some((one) => isDeepStrictEqual(one, given));
    if (isUsed) throw refused([...place, field], field);
  }
}

function refused(place: Place, feature: string) {
  return refusal('feature_not_available', place, `${feature} is not supported by this server yet: leave it out`);
}
