import { credentialsIn, hiding } from '../lib/redact.ts';
import type { CallAnswer } from './call-outcome.ts';
import type { McpEndpoint } from './registry.ts';

/** Hides credentials in a text. */
export type Hide = (text: string) => string;

/**
 * Hides the credentials that a run has given to a server in what the server says: it may repeat them, and the log keeps it.
 * Undefined for a server without such credentials.
 */
export function hidingOf(endpoint: McpEndpoint): Hide | undefined {
  if ('command' in endpoint || endpoint.credentialsOf === undefined) return undefined;
  return hiding(credentialsIn(endpoint.headers));
}

/** An answer without credentials. What the server wants back with the next request is unchanged. */
export function withHidden(answer: CallAnswer, hide: Hide): CallAnswer {
  if (answer.status === 'input_required') return answer;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the same, but for some texts
  return JSON.parse(JSON.stringify(answer), (_, value: unknown) =>
    typeof value === 'string' ? hide(value) : value,
  ) as CallAnswer;
}
