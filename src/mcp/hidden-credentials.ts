import type { Elicitation } from '../core/records.ts';
import { credentialsIn, hiding } from '../lib/redact.ts';
import type { CallAnswer } from './call-outcome.ts';
import type { CallOptions } from './connection.ts';
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
  if (answer.status !== 'input_required') return inTexts(answer, hide);
  const { request } = answer;
  const questions = request.questions.map(([key, question]): [string, Elicitation] => [key, inTexts(question, hide)]);
  return { ...answer, request: { ...request, questions } };
}

/** The options of a call whose questions have no credentials. */
export function askingHidden(options: CallOptions, hide: Hide): CallOptions {
  const { onQuestion } = options;
  return onQuestion ? { ...options, onQuestion: (question) => onQuestion(inTexts(question, hide)) } : options;
}

function inTexts<T>(value: T, hide: Hide): T {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the same, but for some texts
  return JSON.parse(JSON.stringify(value), (_, one: unknown) => (typeof one === 'string' ? hide(one) : one)) as T;
}
