import type { FileContent } from '../../../blobs/store-files.ts';
import type { CallToolInput } from '../../../core/history.ts';
import type { ToolCall } from '../../../core/records/calls.ts';
import type { NewRecord, UnsequencedRecord } from '../../../core/records/log.ts';
import type { ToolOutcome } from '../../../core/records/results.ts';
import type { Execution, SavedFiles } from '../../../core/records/sandbox.ts';
import type { AgentSpec } from '../../../spec/agent-spec.ts';
import type { CodeActions } from '../../../spec/code-actions.ts';
import type { SessionSandbox } from './session-sandbox.ts';

/** A call to run on this host. */
export interface CodeCall {
  input: CallToolInput;
  call: ToolCall;
  spec: AgentSpec;
  /** The conversation of its thread. */
  records: readonly UnsequencedRecord[];
  /** The ids of its requesters: the owner of the session, and the author of the newest message. */
  requesters: string[];
}

/** The state of a call after a step: it has ended, or its code waits for the results of its own calls. */
export type CodeStep = EndedCall | WaitingCode;

/** Waiting code; the records begin its thread, or continue it. */
export interface WaitingCode {
  records: NewRecord[];
}

/** The end of a call. */
export interface EndedCall {
  outcome: ToolOutcome;
  text: string;
  files: FileContent[];
  /** Absent for a call that needs no kernel. */
  execution?: Execution;
  /** The files that it has created; absent if there are none. */
  saved?: SavedFiles;
  /** The events before the end: of the kernel, and in the thread of the code. */
  events: NewRecord[];
  /** The arguments with which it ran. */
  executed: string;
}

/** The sandbox, limits and signal of a running call. */
export interface RunningCall {
  actions: CodeActions;
  sandbox: SessionSandbox;
  limits: CodeActions['kernel'];
  signal: AbortSignal;
}

/** A step of a cell with other records before its own. */
export function prependRecords(records: NewRecord[], step: CodeStep): CodeStep {
  if ('records' in step) return { records: [...records, ...step.records] };
  return { ...step, events: [...records, ...step.events] };
}

/** The result of a call that has succeeded, without a text. */
export function ofTool({ call }: CodeCall): EndedCall {
  return { outcome: 'succeeded', text: '', files: [], events: [], executed: call.arguments };
}
