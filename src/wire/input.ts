import { z } from 'zod';
import { bounded, identifier, line } from './bounds.ts';

/** Turn input (`contracts/sessions-api.md`, section 4), in the clients' names and in the older ones (section 6). */

const MAX_ITEMS = 1_000;
const MAX_PARTS = 1_000;
const MAX_REASON_LENGTH = 10_000;

const textPart = z.object({ type: z.literal('text'), text: z.string() });

const filePart = z.object({
  type: z.literal('file'),
  name: line({ min: 1, max: 255 }),
  data: z.string().describe('data:<mime>;base64,<payload>; on output a URL of this server if the file is large'),
});

const fileUploadPart = z
  .object({
    type: z.literal('file_upload'),
    file: z.object({ filename: z.string(), file_data: z.string() }),
  })
  .transform(({ file }) => ({ type: 'file' as const, name: file.filename, data: file.file_data }))
  .pipe(filePart);

const userMessage = <P extends z.ZodType>(part: P) =>
  z.object({ type: z.literal('user.message'), content: z.union([z.string(), bounded(z.array(part), MAX_PARTS)]) });

const approval = z.discriminatedUnion('status', [
  z.object({ status: z.literal('allow') }),
  z.object({ status: z.literal('deny'), reason: z.string().max(MAX_REASON_LENGTH).nullish() }),
]);

const toolApproval = z.object({
  type: z.literal('user.tool_approval'),
  thread_id: identifier,
  tool_call_id: identifier,
  approval,
});

const toolResponse = z.object({
  type: z.literal('user.tool_response'),
  thread_id: identifier,
  tool_call_id: identifier,
  content: z.string(),
});

/** An input item as it is shown: on `turn.created` and on turns. */
export const inputItem = z
  .discriminatedUnion('type', [
    userMessage(z.discriminatedUnion('type', [textPart, filePart])),
    toolApproval,
    toolResponse,
  ])
  .meta({ id: 'TurnInputItem' });

const inputItemAsSent = z.discriminatedUnion('type', [
  userMessage(z.discriminatedUnion('type', [textPart, filePart, fileUploadPart])),
  toolApproval,
  toolResponse.extend({ content: z.string().min(1, 'must not be empty') }),
]);

/** The body of `POST …/turns`. */
export const createTurnBody = z.object({
  input: bounded(z.array(inputItemAsSent), MAX_ITEMS).nullish(),
  previous_turn_id: z.string().nullish(),
  stream: z.boolean().nullish(),
});

export type WireInputItem = z.infer<typeof inputItem>;
export type CreateTurnBody = z.infer<typeof createTurnBody>;
