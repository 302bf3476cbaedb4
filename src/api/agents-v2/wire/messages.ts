import { z } from 'zod';
import { bounded } from '../../../spec/bounds.ts';

/** What clients send to sessions. */

const MAX_MESSAGES = 100;
const MAX_FILES = 10;

const file = z
  .strictObject({
    type: z.enum(['base64', 'url']),
    source: z.string().describe('the content in base64, or the URL to read it from'),
    name: z.string().min(1).max(256),
    media_type: z.string().max(256).nullish(),
    size_bytes: z.int().min(0).nullish(),
  })
  .meta({ id: 'FileContent' });

const messageFields = {
  message: z.string().max(1_000_000),
  images: bounded(z.array(z.string()), MAX_FILES).nullish().describe('data URIs'),
  files: bounded(z.array(file), MAX_FILES).nullish(),
  caller_id: z.string().max(256).default('user'),
};

/** A message where no other type is accepted. */
export const userMessage = z
  .strictObject({ type: z.literal('user_message').default('user_message'), ...messageFields })
  .meta({ id: 'UserMessageEvent' });

/** A body with messages. The type is required: a body without it may be meant for another route. */
export const messagesBody = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('user_message'), ...messageFields }),
  z.strictObject({
    type: z.literal('batch'),
    messages: z
      .array(z.strictObject({ type: z.literal('user_message').optional(), ...messageFields }))
      .min(1)
      .max(MAX_MESSAGES),
  }),
]);

/** The messages of a new session. */
export const firstMessages = z
  .union([z.string().max(1_000_000), userMessage, bounded(z.array(userMessage), MAX_MESSAGES)])
  .nullish();

export type UserMessage = z.infer<typeof userMessage>;

const toolRequest = z
  .strictObject({
    tool_name: z.string().max(256),
    args: z.record(z.string(), z.unknown()).nullish(),
    id: z.string().max(256).nullish(),
  })
  .meta({ id: 'ToolRequest' });

const toolResult = z.strictObject({
  kind: z.literal('tool_result').default('tool_result'),
  tool_req: toolRequest,
  result: z.unknown().optional().describe('any JSON'),
  truncated: z.boolean().nullish(),
  output_artifact_path: z.string().nullish(),
});

const toolError = z.strictObject({
  kind: z.literal('error_event').default('error_event'),
  error: z.string().max(1_000_000),
  origin: z.string().max(256),
  tool_req: toolRequest.nullish(),
});

/** The results of client-side tools: one, or several. */
export const toolResultsBody = z.union([
  z.strictObject({
    type: z.literal('batch'),
    results: z
      .array(
        z.discriminatedUnion('kind', [
          toolResult.extend({ kind: z.literal('tool_result') }),
          toolError.extend({ kind: z.literal('error_event') }),
        ]),
      )
      .min(1)
      .max(MAX_MESSAGES),
  }),
  toolError,
  toolResult,
]);

export type ToolRequest = z.infer<typeof toolRequest>;
export type ToolResultsBody = z.infer<typeof toolResultsBody>;
