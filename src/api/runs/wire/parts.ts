import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { AUDIO_FORMATS } from '../../../core/audio-formats.ts';
import { USABLE_ID } from '../../../core/ids.ts';
import { BASE64, isBase64 } from '../../../spec/data-uri.ts';
import { givenCall, givenCitations, givenResult, listOf } from './hosted.ts';

/**
 * The parts of messages as clients send them, in the shapes of both versions of llm-sdk (`docs/runs-api.md`). Null means
 * unset, and fields that are not read are ignored: stored items may carry those of any version.
 */

/** The name of a tool as a model wrote it; there may be no such tool. */
export const toolName = z.string().min(1).max(256);

export const callId = z.string().regex(USABLE_ID, 'must be 1 to 64 printable ASCII characters without spaces');

export const jsonObject = z.record(z.string(), z.unknown());

const base64 = z
  .string()
  .min(1)
  .refine(isBase64, 'must be base64')
  .meta({ override: { pattern: `^${BASE64}$` } });

/** The provider's fields of a model's message; a signature that is not from this server is ignored. */
const signature = z.string().nullish();

const text = z.object({ type: z.literal('text'), text: z.string() });

const image = z.object({
  type: z.literal('image'),
  mime_type: z
    .string()
    .regex(/^image\/[\w.+-]{1,127}$/, 'must be the media type of an image')
    .toLowerCase(),
  data: base64,
});

const audio = z.object({
  type: z.literal('audio'),
  data: base64,
  format: z.enum(AUDIO_FORMATS),
  transcript: z.string().nullish().describe('of audio that a model has made: what other model calls are given of it'),
});

const medium = z.discriminatedUnion('type', [text, image, audio]).meta({ id: 'RunInputMedium' });

const source = z.object({
  type: z.literal('source'),
  source: z.string(),
  title: z.string(),
  content: listOf(medium),
});

const reasoning = z.object({ type: z.literal('reasoning'), text: z.string(), signature });

export type Medium = z.infer<typeof medium>;
export type Source = z.infer<typeof source>;

/** What a tool has returned. */
const resultPart = z.discriminatedUnion('type', [text, image, audio, source]).meta({ id: 'RunInputResultPart' });

export const resultContent = listOf(resultPart);

export type ResultContent = z.infer<typeof resultContent>;

const toolCall = z
  .object({
    type: z.literal('tool-call'),
    tool_call_id: callId,
    tool_name: toolName.nullish(),
    args: jsonObject.nullish(),
    signature,
    raw_args: z.string().nullish().describe('the arguments as the model wrote them, if they are not a JSON object'),
    call: z
      .discriminatedUnion('type', [
        z.object({ type: z.literal('function'), name: toolName, args: jsonObject }),
        givenCall,
      ])
      .nullish()
      .describe('instead of tool_name and args, or equal to them'),
  })
  .transform(({ type, tool_call_id: id, call, ...own }, context) => {
    if (call?.type === 'web_search') return { type, id, hosted: call, signature: own.signature };
    const name = agreed(context, { own: own.tool_name, other: call?.name, field: 'tool_name' });
    const args = agreed(context, { own: own.args, other: call?.args, field: 'args' });
    return { type, id, name, arguments: own.raw_args ?? JSON.stringify(args), signature: own.signature };
  });

const status = z.enum(['completed', 'failed', 'cancelled']);

export type CallStatus = z.infer<typeof status>;

/** How a call ended, in both shapes. */
export const callEnd = { is_error: z.boolean().nullish(), status: status.nullish() };

type CallEnd = z.infer<z.ZodObject<typeof callEnd>>;

const toolResult = z
  .object({
    type: z.literal('tool-result'),
    tool_call_id: callId,
    content: resultContent.nullish(),
    ...callEnd,
    result: z
      .discriminatedUnion('type', [z.object({ type: z.literal('function'), content: resultContent }), givenResult])
      .nullish()
      .describe('instead of content, or with the same content'),
  })
  .transform(({ type, tool_call_id: id, content, result, ...end }, context) => {
    if (result?.type === 'web_search') return { type, id, hosted: result };
    return {
      type,
      id,
      content: agreed(context, { own: content, other: result?.content, field: 'content' }),
      status: statusOf(end, context),
    };
  });

/** The status of a call; a contradiction between its shapes is an issue. */
export function statusOf({ is_error: isError, status }: CallEnd, context: z.RefinementCtx): CallStatus {
  const known = status ?? (isError ? 'failed' : 'completed');
  if (typeof isError === 'boolean' && isError !== (known !== 'completed')) {
    context.addIssue({ code: 'custom', path: ['is_error'], message: `contradicts the status ${known}` });
  }
  return known;
}

/** The value that a part has in one or in both of its shapes. */
function agreed<T>(
  context: z.RefinementCtx,
  { own, other, field }: { own: T | null | undefined; other: T | null | undefined; field: string },
): T {
  const value = own ?? other;
  if (value === null || value === undefined) {
    context.addIssue({ code: 'custom', path: [field], message: 'is required' });
    return z.NEVER;
  }
  if (own !== null && own !== undefined && other !== null && other !== undefined && !isDeepStrictEqual(own, other)) {
    context.addIssue({
      code: 'custom',
      path: [field],
      message: 'differs from the value in the other shape of the part',
    });
  }
  return value;
}

const part = z
  .discriminatedUnion('type', [
    text.extend({ signature, citations: givenCitations.nullish() }),
    image.extend({ signature }),
    audio,
    source,
    reasoning,
    toolCall,
    toolResult,
  ])
  .meta({ id: 'RunInputPart' });

export type InputPart = z.infer<typeof part>;

/** The content of a message; a text is one part. */
export const messageContent = z.union([
  z.string().transform((text) => [{ type: 'text' as const, text }]),
  listOf(part),
]);
