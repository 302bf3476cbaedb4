import { z } from 'zod';
import { bounded } from '../../../spec/bounds.ts';
import { callEnd, callId, jsonObject, messageContent, resultContent, statusOf, toolName } from './parts.ts';

/** The items of a conversation as clients send them, in the shapes of both versions of llm-agent. */

const MAX_ITEMS = 10_000;

const message = z.object({
  type: z.literal('message'),
  role: z.enum(['user', 'assistant', 'tool']),
  content: messageContent,
});

const model = z.object({
  type: z.literal('model'),
  id: z.string().max(256).nullish().describe('as a run of this server has returned it'),
  content: messageContent,
});

const tool = z
  .object({
    type: z.literal('tool'),
    tool_call_id: callId,
    tool_name: toolName,
    input: jsonObject,
    output: resultContent,
    ...callEnd,
  })
  .transform(({ type, tool_call_id: id, output: content, ...end }, context) => ({
    type,
    id,
    content,
    status: statusOf(end, context),
  }));

const item = z.discriminatedUnion('type', [message, model, tool]).meta({ id: 'RunInputItem' });

/** A conversation; that there is at least one item is a rule of its own. */
export const inputItems = bounded(z.array(item), MAX_ITEMS).meta({
  description: 'the whole conversation, 1 to 10,000 items, each with at most 1,000 parts',
  override: {},
});

export type RunInputItem = z.infer<typeof item>;
