import type { NewRecord } from '../../../core/records/log.ts';
import type { ModelMessage } from '../../../core/records/message.ts';
import type { ToolOutcome } from '../../../core/records/results.ts';
import type { Execution } from '../../../core/records/sandbox.ts';
import { cutPoint } from '../../../core/text.ts';
import { newId } from '../../../engine/new-id.ts';
import { IPYTHON } from '../code-tools.ts';
import type { CodeCall } from './code-step.ts';

/** The bytes of a cell's output in the end record of its thread. */
const MAX_OUTPUT_BYTES = 4_096;

/** The bytes of a cell's code in the first record of its thread. */
const MAX_SHOWN_CODE = 65_536;

/** The first record of the thread of a cell, written with its first calls. */
export function cellThreadCreated(
  { input }: CodeCall,
  { threadId, code, at }: { threadId: string; code: string; at: string },
): NewRecord {
  const { threadId: parent, toolCallId, source, specHash } = input;
  const thread = {
    threadId,
    code: { source },
    title: IPYTHON.name,
    parent: { threadId: parent, toolCallId },
    depth: 0,
    specHash,
    hasServers: false,
    iterations: 0,
  };
  return { kind: 'thread.created', at, thread, input: headOf(code, MAX_SHOWN_CODE) };
}

/** The last record of the thread of a cell, with its output. */
export function cellThreadDone(
  { input }: CodeCall,
  { threadId, outcome, text, exit }: { threadId: string; outcome: ToolOutcome; text: string; exit: Execution['exit'] },
): NewRecord {
  const at = new Date().toISOString();
  const parent = { threadId: input.threadId, toolCallId: input.toolCallId };
  const base = { kind: 'thread.done', at, threadId, title: IPYTHON.name, parent } as const;
  if (outcome !== 'succeeded') return { ...base, end: { status: 'error', message: `the code has ended: ${exit}` } };
  const content = headOf(text, MAX_OUTPUT_BYTES);
  const output = messageOfCode({ id: newId('msg'), at, threadId, content, toolCalls: [], finishReason: 'stop' });
  return { ...base, end: { status: 'done' }, output };
}

/** A message of the thread of a cell. */
export function messageOfCode(
  fields: Pick<ModelMessage, 'id' | 'at' | 'threadId' | 'content' | 'toolCalls' | 'finishReason'>,
): ModelMessage {
  return { kind: 'model.message', ...fields, refusal: '', reasoning: '', fromCode: true };
}

function headOf(text: string, bytes: number): string {
  return text.slice(0, cutPoint(text, 0, bytes));
}

/** The result of a command. */
export function commandResult(
  { threadId, id: toolCallId }: { threadId: string; id: string },
  outcome: 'succeeded' | 'failed' | 'cancelled',
  content: string,
): NewRecord {
  return { kind: 'tool.response', at: new Date().toISOString(), threadId, toolCallId, outcome, content };
}
