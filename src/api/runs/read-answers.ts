import type { StoredFile } from '../../core/records/input.ts';
import type { AnswerableCall, Approval } from '../../core/records/pending.ts';
import { ROOT_THREAD } from '../../core/records/threads.ts';
import { callKey, outcomeText, type CallKey } from '../../core/tool-records.ts';
import { approvalOf } from '../../engine/edited-arguments.ts';
import { refusal, type FieldPath } from './errors.ts';
import { waitingCalls } from './required-action.ts';
import { readResultContent } from './result-content.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import type { RunOutput } from './run-output.ts';
import { requireSupported } from './supported-parts.ts';
import type { ResumeRequest } from './wire/resume.ts';

/** An answer of a request. */
export interface SentAnswer {
  fieldPath: FieldPath;
  toolCallId: string;
  threadId: string | null | undefined;
  needs: AnswerableCall['needs'];
  given: { approval: Approval; remembers?: true } | SentResult;
}

/** A result of a client, with its files inline. */
export interface SentResult {
  content: string;
  files?: StoredFile[];
  isError?: true;
  /** The message of the error that the tool threw: the model sees the content instead. */
  error?: string;
}

/** The answers of a request to calls. @throws ApiError if this server does not support one of them */
export function readAnswers({ tool_results: results, approvals }: ResumeRequest): SentAnswer[] {
  const responses = (results ?? []).map((result, i): SentAnswer => {
    const { tool_call_id: toolCallId, thread_id: threadId, content, is_error: isError, error } = result;
    const fieldPath = ['tool_results', i];
    const given = error
      ? { content: outcomeText('failed'), error: error.message }
      : { ...readResultContent(content ?? []), ...(isError && { isError }) };
    return { fieldPath, toolCallId, threadId, needs: 'response', given };
  });
  const decisions = (approvals ?? []).map(({ remember, ...decision }, i): SentAnswer => {
    const { tool_call_id: toolCallId, thread_id: threadId } = decision;
    const fieldPath = ['approvals', i];
    const given = { approval: approvalOf(decision), ...(remember && { remembers: true as const }) };
    return { fieldPath, toolCallId, threadId, needs: 'approval', given };
  });
  return [...responses, ...decisions];
}

/** Checks that a run's model takes what results contain. @throws ApiError `unsupported_part` */
export function requireSupportedResults({ tool_results: results }: ResumeRequest, spec: AgentSpec): void {
  if (!spec.takesNoImages) return;
  const accepted = { audioTypes: new Set<string>(), ownImages: true, missing: new Set(['image_input'] as const) };
  for (const [i, { content }] of (results ?? []).entries()) {
    for (const [j, part] of (content ?? []).entries()) {
      requireSupported(part, ['tool_results', i, 'content', j], { author: 'result', accepted });
    }
  }
}

/** The call that an answer is for. @throws ApiError `call_not_pending` if the run has never waited for that answer */
export function callOf({ fieldPath, toolCallId, threadId, needs }: SentAnswer, output: RunOutput): CallKey {
  const waiting = waitingCalls(output.view).map(({ pending }) => pending);
  const named = waiting.filter((call) => call.toolCallId === toolCallId);
  const ownThread = named.length === 1 ? named[0]?.threadId : undefined;
  const key = { threadId: threadId ?? ownThread ?? ROOT_THREAD, toolCallId };
  const call = named.find((one) => callKey(one) === callKey(key));
  if (call ? call.needs === needs : output.view.wasAsked(key)) return key;
  const what = needs === 'approval' ? 'an approval' : 'a result';
  const message = `the run does not wait for ${what} of tool call ${toolCallId}`;
  throw refusal('call_not_pending', [...fieldPath, 'tool_call_id'], message);
}
