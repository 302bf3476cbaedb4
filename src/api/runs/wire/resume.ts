import { z } from 'zod';
import { bounded, identifier } from '../../../spec/bounds.ts';
import { MAX_TOOLKITS, refreshedToolkit } from './agent-params.ts';
import { callId, jsonObject, resultContent } from './parts.ts';
import { responseOptions } from './request.ts';

/**
 * What resumes a run: answers to the calls that it waits for, and its toolkits. Null means unset.
 * Unknown keys are rejected, but for those of the parts of a result.
 */

const MAX_ANSWERS = 1_000;
const MAX_TEXT_LENGTH = 10_000;
const MAX_EDIT_BYTES = 64 * 1024;

const REMEMBERED = 'must be true, false or {"scope": "session"}: a decision is remembered for the rest of the run';

const call = {
  tool_call_id: callId,
  thread_id: identifier.nullish().describe('that of the call in required_action; needed if two calls have the same id'),
};

const toolResult = z
  .strictObject({
    ...call,
    content: z
      .union([z.string().transform((text) => [{ type: 'text' as const, text }]), resultContent])
      .nullish()
      .describe('the result; a string is one text part'),
    is_error: z.boolean().nullish().describe('the result reports an error: the model is told, and the run continues'),
    error: z
      .strictObject({ message: z.string().max(MAX_TEXT_LENGTH) })
      .nullish()
      .describe('instead of content: the tool threw, and there is no result. The model is not shown the message'),
  })
  .superRefine(({ content, error }, context) => {
    if ((content ?? undefined) === undefined && !error) {
      context.addIssue({ code: 'custom', path: ['content'], message: 'give either content or error' });
    } else if ((content ?? undefined) !== undefined && error) {
      context.addIssue({ code: 'custom', path: ['error'], message: 'a call has either content or an error' });
    }
  });

const approval = z.strictObject({
  ...call,
  status: z.enum(['allow', 'deny']),
  reason: z.string().max(MAX_TEXT_LENGTH).nullish().describe('of a denial: the model is told'),
  arguments: jsonObject
    .refine((edited) => Buffer.byteLength(JSON.stringify(edited)) <= MAX_EDIT_BYTES, 'must have at most 64 KiB')
    .nullish()
    .describe('the call runs with these arguments instead of those that the model wrote'),
  remember: z
    .union([z.boolean(), z.strictObject({ scope: z.literal('session', REMEMBERED) })], REMEMBERED)
    .nullish()
    .describe('true or {"scope": "session"}: later calls of the tool in this run are decided in the same way'),
});

/** The body of `POST /v1/runs/{run_id}/resume`. */
export const resumeRequest = z
  .strictObject({
    tool_results: bounded(z.array(toolResult), MAX_ANSWERS).nullish(),
    approvals: bounded(z.array(approval), MAX_ANSWERS).nullish(),
    refresh: bounded(z.array(refreshedToolkit), MAX_TOOLKITS)
      .nullish()
      .describe('the dynamic toolkits of required_action as they are now: without a system_prompt they have none'),
    ...responseOptions,
  })
  .meta({ id: 'ResumeRequest' });

export type ResumeRequest = z.infer<typeof resumeRequest>;
