import type { ToolCall } from '../../core/records/calls.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import type { ToolResponse } from '../../core/records/results.ts';
import type { ModelFailed, TurnOutcome } from '../../core/records/turn.ts';
import { toModelParts } from './output-parts.ts';
import type { RunError } from './wire/run.ts';

const NAMES: Record<RunError['type'], string> = {
  language_model_error: 'AgentLanguageModelError',
  tool_execution_error: 'AgentToolExecutionError',
  max_turns_exceeded: 'AgentMaxTurnsExceededError',
  invariant_error: 'AgentInvariantError',
  init_error: 'AgentInitError',
  timeout: 'AgentTimeoutError',
  action_expired: 'AgentTimeoutError',
  internal_error: 'AgentError',
};

/** The end of a run according to its log. */
interface RunEnd {
  end: TurnOutcome;
  /** The last message of the root thread. */
  last: ModelMessage | undefined;
  /** The first call that has no result of its tool, with its response. */
  failed: { call: ToolCall; response: ToolResponse } | undefined;
  /** Whether an answer of the client or of a person did not arrive in time. */
  hasExpired: boolean;
  maxTurns: number;
}

/** Why a run has failed; undefined if it has not. */
export function toRunError(run: RunEnd): RunError | undefined {
  const { end, last } = run;
  switch (end.status) {
    case 'done':
      // The last message of the input is the output, even if it has only reasoning.
      if (last?.isGiven) return undefined;
      if (last?.refusal && !last.content) {
        const cause = { type: 'refusal' as const, message: last.refusal, ...providerOf(last) };
        return failure('language_model_error', 'The model refused to answer.', cause);
      }
      return last && toModelParts(last).length > 0
        ? undefined
        : failure('invariant_error', 'No content in the assistant message.');
    case 'cancelled':
      if (end.reason === 'server-execution-timeout')
        return failure('timeout', 'The time limit of the run was reached.');
      return end.reason === 'abandoned' ? failure('internal_error', 'The run was stopped by the server.') : undefined;
    case 'error':
      return turnError(run, end);
  }
}

function turnError(
  { last, failed, hasExpired, maxTurns }: RunEnd,
  { message, code, modelFailure }: Extract<TurnOutcome, { status: 'error' }>,
): RunError {
  if (code === undefined) return failure(hasExpired ? 'action_expired' : 'internal_error', message);
  switch (code) {
    case 'iteration_limit':
      return failure('max_turns_exceeded', `The maximum number of turns (${maxTurns}) has been exceeded.`);
    case 'answer_misfit':
    case 'repeated_call_id':
      return failure('invariant_error', message);
    case 'model_failed':
      return failure('language_model_error', message, {
        ...modelCause(message, modelFailure),
        ...(last && providerOf(last)),
      });
    case 'tool_failed':
      return failed ? toolError(failed) : failure('tool_execution_error', message);
    case 'server_unavailable':
    case 'repeated_tool_name':
      return failure('init_error', message);
    case 'action_expired':
      return failure('action_expired', message);
    case 'budget_exceeded':
      return failure('internal_error', message);
  }
}

function toolError({ call: { id, name }, response }: NonNullable<RunEnd['failed']>): RunError {
  const { content, error, outcome, noResult } = response;
  if (noResult === 'unknown_tool') return failure('invariant_error', `Tool ${name} not found in agent`);
  return failure('tool_execution_error', `The tool ${name} has given no result.`, {
    type: noResult ?? (outcome === 'unknown_outcome' ? 'unknown_outcome' : 'protocol'),
    message: error ?? content,
    tool_call_id: id,
    tool_name: name,
  });
}

/** The cause of a failed model call. Without a status, no response arrived, or not in time, or it broke off. */
function modelCause(message: string, { kind = '', status }: Partial<ModelFailed> = {}): NonNullable<RunError['cause']> {
  if (status !== undefined) return { type: 'status_code', message, status_code: status };
  return { type: NETWORK.has(kind) ? 'network' : 'status_code', message };
}

const NETWORK = new Set(['connection', 'timeout', 'stalled', 'broken_stream']);

function providerOf({ provider }: ModelMessage): { provider?: string } {
  return provider === undefined ? {} : { provider };
}

function failure(type: RunError['type'], message: string, cause?: RunError['cause']): RunError {
  return { type, name: NAMES[type], message, ...(cause && { cause }) };
}
