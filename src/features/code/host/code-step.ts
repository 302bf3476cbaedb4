import type { FileContent } from '../../../blobs/store-files.ts';
import type { CallToolInput } from '../../../core/history.ts';
import type { ToolCall } from '../../../core/records/calls.ts';
import type { NewRecord, UnsequencedRecord } from '../../../core/records/log.ts';
import type { ToolOutcome } from '../../../core/records/results.ts';
import type { Execution, SavedFiles } from '../../../core/records/sandbox.ts';
import type { AgentSpec } from '../../../spec/agent-spec.ts';
import type { CodeActions } from '../../../spec/code-actions.ts';
import type { SessionSandbox } from './session-sandbox.ts';

/** A call that is to run on this host. */
export interface CodeCall {
  input: CallToolInput;
  call: ToolCall;
  spec: AgentSpec;
  /** The conversation of its thread. */
  records: readonly UnsequencedRecord[];
  /** The ids of those who have asked for it: the owner of the session, and the author of the newest message. */
  requesters: string[];
}

/** What comes of a call: it has ended, or its code waits for what it has asked for. */
export type CodeStep = EndedCall | WaitingCode;

/** The code waits: the records begin its thread, or continue it. */
export interface WaitingCode {
  records: NewRecord[];
}

/** How a call has ended. */
export interface EndedCall {
  outcome: ToolOutcome;
  text: string;
  files: FileContent[];
  /** Absent for a call that needs no kernel. */
  execution?: Execution;
  /** The files that it has made; absent if there are none. */
  saved?: SavedFiles;
  /** What happened before: to the kernel, and in the thread of the code. */
  events: NewRecord[];
  /** The arguments with which it ran. */
  executed: string;
}

/** What a call runs with. */
export interface RunningCall {
  actions: CodeActions;
  sandbox: SessionSandbox;
  limits: CodeActions['kernel'];
  signal: AbortSignal;
}

/** A step of a cell after other records. */
export function after(records: NewRecord[], step: CodeStep): CodeStep {
  if ('records' in step) return { records: [...records, ...step.records] };
  return { ...step, events: [...records, ...step.events] };
}

/** The result of a call that has succeeded and says nothing. */
export function ofTool({ call }: CodeCall): EndedCall {
  return { outcome: 'succeeded', text: '', files: [], events: [], executed: call.arguments };
}
