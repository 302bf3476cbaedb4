import { z } from 'zod';
import type { Elicitation, ElicitationAnswer } from '../core/records/pending.ts';
import { parsedJson } from '../lib/json.ts';
import { schemaProblem } from './arguments.ts';

/** Above what people write into a form. */
const MAX_LENGTH = 64 * 1024;

const MAX_FIELDS = 1_000;

/** The values that MCP allows in a form. */
const value = z.union([z.string(), z.number(), z.boolean(), z.array(z.string()).max(MAX_FIELDS)]);

const answer = z.discriminatedUnion('action', [
  z.object({
    action: z.literal('accept'),
    content: z
      .record(z.string(), value)
      .refine((fields) => Object.keys(fields).length <= MAX_FIELDS, `must have at most ${MAX_FIELDS} fields`)
      .optional(),
  }),
  z.object({ action: z.enum(['decline', 'cancel']) }),
]);

const FORM = '{"action": "accept", "content": {…}}, or {"action": "decline"} or {"action": "cancel"}';

type ParsedAnswer = { ok: true; answer: ElicitationAnswer } | { ok: false; message: string };

/** Parses the content of a `user.tool_response` that answers a server's question, and validates a form. */
export function parseAnswer(question: Elicitation, content: string): ParsedAnswer {
  const problem = (message: string): ParsedAnswer => ({ ok: false, message });
  if (content.length > MAX_LENGTH) return problem(`the answer is longer than ${MAX_LENGTH} characters`);
  const json = parsedJson(content);
  if (json === undefined) return problem(`the answer is not JSON: send ${FORM}`);
  const parsed = answer.safeParse(json);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    return problem(`the answer does not have the form ${FORM}: /${issue?.path.join('/')} ${issue?.message}`);
  }
  const { data } = parsed;
  if (data.action !== 'accept') return { ok: true, answer: data };
  if (question.mode === 'url') return { ok: true, answer: { action: 'accept' } };
  const { content: fields = {} } = data;
  const misfit = schemaProblem(question.requestedSchema, fields, 2 * MAX_FIELDS);
  if (misfit) return problem(`the content of the answer does not fit the requested schema: ${misfit}`);
  return { ok: true, answer: { action: 'accept', content: fields } };
}

/** Why a response does not answer a question; undefined if it does. */
export function answerProblem(question: Elicitation, content: string): string | undefined {
  const parsed = parseAnswer(question, content);
  return parsed.ok ? undefined : parsed.message;
}
