import type { Elicitation } from '../core/records/pending.ts';
import { z } from 'zod';

/** Limits of one question. 32 of them are in one event, which must stay below 1 MiB. */
const MAX_MESSAGE_LENGTH = 4_000;
const MAX_SCHEMA_LENGTH = 8_000;
const MAX_URL_LENGTH = 2_048;

/** Questions in one response of a server. */
const MAX_QUESTIONS = 8;

const MAX_KEY_LENGTH = 256;

/** For `requestState`, in which a server keeps its state, and which it gets back with the answers. */
const MAX_STATE_LENGTH = 256 * 1024;

const message = z.string().max(MAX_MESSAGE_LENGTH);

const schema = z
  .looseObject({ type: z.literal('object') })
  .refine(
    (value) => JSON.stringify(value).length <= MAX_SCHEMA_LENGTH,
    `is longer than ${MAX_SCHEMA_LENGTH} characters`,
  );

const page = z
  .object({ mode: z.literal('url'), message, url: z.url({ protocol: /^https?$/ }).max(MAX_URL_LENGTH) })
  .transform((question): Elicitation => question);

/** The pages that the user has to visit first (MCP of 2025-11-25, "URL Elicitation Required Errors"). */
const pages = z.array(page).min(1).max(MAX_QUESTIONS);

/** The parameters of `elicitation/create` (MCP, "Elicitation"). Without a mode it is a form. */
const params = z.union([
  page,
  z
    .object({ mode: z.literal('form').optional(), message, requestedSchema: schema })
    .transform(({ message, requestedSchema }): Elicitation => ({ mode: 'form', message, requestedSchema })),
]);

const requests = z
  .record(z.string().max(MAX_KEY_LENGTH), z.object({ method: z.literal('elicitation/create'), params }))
  .refine((all) => Object.keys(all).length <= MAX_QUESTIONS, `has more than ${MAX_QUESTIONS} questions`);

const result = z.object({
  inputRequests: requests.default({}),
  requestState: z.string().max(MAX_STATE_LENGTH).optional(),
});

/** A server's request for input instead of a result (MCP, "Multi Round-Trip Requests"). */
export interface InputRequest {
  /** By the keys under which the server expects the answers. */
  questions: [key: string, question: Elicitation][];
  /** Returned to the server as it is. */
  requestState?: string;
  /** The call is sent again as it was, once the user has accepted all: the answers do not go to the server. */
  isPrecondition?: true;
}

/** Undefined if it is not a question that this client offers to ask. */
export function readQuestion(value: unknown): Elicitation | undefined {
  return params.safeParse(value).data;
}

/** Undefined if it is not a list of pages, or is too large. */
export function readRequiredPages(value: unknown): InputRequest | undefined {
  const { data } = pages.safeParse(value);
  return data && { questions: data.map((question, i) => [String(i), question]), isPrecondition: true };
}

/** Undefined if it asks for more than this client offers, or is too large. */
export function readInputRequest(value: unknown): InputRequest | undefined {
  const { data } = result.safeParse(value);
  if (!data) return undefined;
  const { inputRequests, requestState } = data;
  return {
    questions: Object.entries(inputRequests).map(([key, request]) => [key, request.params]),
    ...(requestState !== undefined && { requestState }),
  };
}
