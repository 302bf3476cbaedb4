import { BEGINNING, FIRST_PIECE, parseCursor, sequenceNumber, type Cursor } from '../../core/cursor.ts';
import type { Caller } from '../../core/subject.ts';
import type { Answer, ClientResult } from '../../core/turn-command.ts';
import { requireRight } from '../../engine/access.ts';
import { answerCalls } from '../../engine/answer-calls.ts';
import { EngineError, type EngineErrorCode } from '../../engine/errors.ts';
import { newId } from '../../engine/new-id.ts';
import { claimByKey, type RequestClaim, withClaim } from '../../engine/request-claims.ts';
import { runNotFound, type FoundRun } from '../../features/run-support/runs.ts';
import { unlessNotFound } from '../../engine/turn-log-reader.ts';
import { storeToolResult } from '../../tools/results.ts';
import type { ApiContext } from '../http/context.ts';
import { ApiError } from '../http/errors.ts';
import { pathText, RUN_ERRORS } from './errors.ts';
import { followRun, type FollowedRun } from './follow-run.ts';
import { callOf, readAnswers, requireSupportedResults, type SentAnswer, type SentResult } from './read-answers.ts';
import { readRefreshes } from './refresh-toolkits.ts';
import type { RunOutput } from './run-output.ts';
import type { ResumeRequest } from './wire/resume.ts';

interface ResumeCall {
  run: FoundRun;
  body: ResumeRequest;
  /** `Idempotency-Key`. */
  key: string | undefined;
  caller: Caller;
}

/** The errors of the engine for a call of the run that no longer waits. */
const ANSWERED: ReadonlySet<EngineErrorCode> = new Set(['nothing_pending', 'call_not_pending', 'already_decided']);

/**
 * Resumes a run with results, approvals and toolkits: all of them are accepted, or none. Returns the client's cursor in
 * the stream that follows; a repetition with the same key gets the stream of the first request.
 * @throws ApiError or EngineError
 */
export async function resumeRun(context: ApiContext, call: ResumeCall): Promise<Cursor> {
  const sent = readAnswers(call.body);
  const known = await read(context, call.run);
  const claimed = await claimResume(context, call, known);
  const { cursor, claim } = claimed;
  try {
    if (sent.length + (call.body.refresh ?? []).length > 0) {
      await withClaim(claim, () => answer(context, call, { ...claimed, sent, output: known.output }));
    }
  } catch (error) {
    // Either the first request was in time, or no repetition can be: the stream shows how the run ended.
    const isTooLate = !claim.isNew && error instanceof ApiError && error.code === 'run_ended';
    if (!isTooLate) throw error;
  }
  const { output, cursor: now } = await read(context, call.run);
  const isUnchanged = sequenceNumber(now) === sequenceNumber(cursor);
  // The stream then sends once more what the run waits for.
  return isUnchanged && output.status === 'requires_action' ? justBefore(cursor) : cursor;
}

function justBefore({ ordinal, frame }: Cursor): Cursor {
  return frame > 0 ? { ordinal, frame: frame - 1 } : { ordinal: ordinal - 1, frame: FIRST_PIECE };
}

async function read(context: ApiContext, run: FoundRun): Promise<FollowedRun> {
  const found = await unlessNotFound(followRun(context, run, { waitMs: 0 }));
  if (!found) throw runNotFound(run.runId);
  return found;
}

interface ClaimedResume {
  cursor: Cursor;
  /** The message after which toolkits were last to be refreshed; empty if none was. */
  messageId: string;
  claim: Pick<RequestClaim, 'isNew' | 'release'>;
}

/**
 * The resource of the claim contains what the first request has read: the cursor from which its stream begins, and the
 * message that its toolkits are for, since a repetition must not refresh the toolkits of a later message.
 */
async function claimResume(
  { catalog }: Pick<ApiContext, 'catalog'>,
  { run: { runId, sessionId }, body, key, caller }: ResumeCall,
  { cursor, output }: FollowedRun,
): Promise<ClaimedResume> {
  const messageId = output.view.refresh?.messageId ?? '';
  const resourceId = `${newId('req')}@${sequenceNumber(cursor)}@${messageId}`;
  const claim = await claimByKey({ catalog, caller, resource: runId, key, body, resourceId, sessionId });
  const [, number, known = ''] = claim.resourceId.split('@');
  return { cursor: parseCursor(Number(number)) ?? BEGINNING, messageId: known, claim };
}

interface GivenAnswers extends ClaimedResume {
  sent: SentAnswer[];
  /** The output of the run when the request arrived. */
  output: RunOutput;
}

/** @throws ApiError or EngineError */
async function answer(
  context: ApiContext,
  { run, body, caller }: ResumeCall,
  { sent, messageId, output, claim }: GivenAnswers,
): Promise<void> {
  const refresh = body.refresh ?? [];
  const isRefreshed = refresh.length > 0;
  // Before anything is stored with the run.
  if (isRefreshed || sent.some(({ needs }) => needs === 'response')) requireRight(run.session, caller, 'send');
  if (!output.isOpen) throw hasEnded(run);
  const spec = await context.catalog.agents.spec(run.session.spec_hash);
  requireSupportedResults(body, spec);
  const refreshes = isRefreshed && { refreshes: readRefreshes(refresh, { spec, view: output.view, messageId }) };
  const answered = sent.map((one) => ({ ...one, call: callOf(one, output) }));
  const answers: Answer[] = [];
  // One after the other: each may have megabytes.
  for (const { call, given } of answered) {
    answers.push(
      'approval' in given
        ? { type: 'user.tool_approval', ...call, ...given }
        : { type: 'user.tool_response', ...call, ...(await store(given, context, run)) },
    );
  }
  try {
    await answerCalls(context, { session: run.session, caller, answers, isRepetition: !claim.isNew, ...refreshes });
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    const param = paramOf(error, sent);
    if (!ANSWERED.has(error.code)) throw new EngineError(error.code, error.message, { param, cause: error });
    if (!(await read(context, run)).output.isOpen) throw hasEnded(run);
    const message = 'this was answered before, and differently: required_action has what the run waits for';
    throw new ApiError(RUN_ERRORS.call_already_answered, message, { param, cause: error });
  }
}

/** Stores the content as that of any tool's result. */
async function store(
  { content: text, files = [], ...end }: SentResult,
  { blobs }: Pick<ApiContext, 'blobs'>,
  { sessionId }: FoundRun,
): Promise<ClientResult> {
  const inline = files.flatMap((file) => ('base64' in file ? [file] : []));
  return { ...(await storeToolResult({ text, files: inline }, { blobs, sessionId })), ...end };
}

/** The path in the request for an error of the engine, which names an answer by its index. */
function paramOf({ param = '' }: EngineError, sent: SentAnswer[]): string | undefined {
  const [, toolkit] = /^refreshes\.(\d+)$/.exec(param) ?? [];
  if (toolkit !== undefined) return pathText(['refresh', Number(toolkit), 'name']);
  const [, index, pointer = ''] = /^input\.(\d+)(?:\.approval\.(.*))?$/s.exec(param) ?? [];
  const answer = sent[Number(index)];
  return answer && pathText([...answer.fieldPath, pointer || 'tool_call_id']);
}

function hasEnded({ runId }: FoundRun): ApiError {
  return new ApiError(RUN_ERRORS.run_ended, `the run ${runId} has ended: start another one with its output as input`);
}
