import { inlineFile, type FileContent } from '../../blobs/store-files.ts';
import type { InputItem, UserContentPart } from '../../core/records/input.ts';
import type { Answer } from '../../core/turn-command.ts';
import type { RuleToRemember } from '../../features/code/permissions/remember.ts';
import { approvalOf } from '../../engine/edited-arguments.ts';
import type { ActionsBody, CreateTurnBody } from './wire/input.ts';
import { ApiError } from '../http/errors.ts';
import { checkFiles, type SentFile } from '../http/sent-files.ts';
import { SESSION_ERRORS } from './errors.ts';

type SentItem = NonNullable<CreateTurnBody['input']>[number];
type SentPart = Exclude<Extract<SentItem, { type: 'user.message' }>['content'], string>[number];

/** Whether the input consists of nothing but decisions on tool calls. */
export function isDecision(items: SentItem[]): boolean {
  return items.length > 0 && items.every(({ type }) => type === 'user.tool_approval');
}

/** One event has all of the edits of a turn's input: it stays below 1 MiB with the texts of the input. */
const MAX_EDITS_BYTES = 256 * 1024;

/** Checks everything that does not depend on the session. @throws ApiError */
export function checkInput(items: SentItem[]): void {
  const edits = items.flatMap((item) => ('approval' in item && 'arguments' in item.approval ? item.approval : []));
  if (Buffer.byteLength(JSON.stringify(edits)) > MAX_EDITS_BYTES) {
    throw new ApiError('content_too_large', 'the edited arguments of a request may have 256 KiB in all', {
      param: 'input',
    });
  }
  const messages = items.filter((item) => item.type === 'user.message');
  if (messages.length > 0 && messages.length < items.length) {
    throw new ApiError(SESSION_ERRORS.mixed_input, 'send either user messages or answers to tool calls, not both', {
      param: 'input',
    });
  }
  for (const [i, { content }] of messages.entries()) {
    const parts: SentPart[] = typeof content === 'string' ? [{ type: 'text', text: content }] : content;
    if (parts.some((part) => part.type === 'file' || part.text.trim() !== '')) continue;
    throw new ApiError(SESSION_ERRORS.empty_message, 'a user message must have some text or a file', {
      param: `input.${i}.content`,
    });
  }
  checkFiles(filesOf(items));
}

/** The files of an input, in order. */
export function filesOf(items: SentItem[]): SentFile[] {
  return items.flatMap((item, i) => {
    if (item.type !== 'user.message' || typeof item.content === 'string') return [];
    return item.content.flatMap((part, j) => {
      if (part.type !== 'file') return [];
      const { name, data } = part;
      return [{ name, data, param: `input.${i}.content.${j}.data` }];
    });
  });
}

/** The input in the engine's form: files, whose `contents` are in the same order, are inline. */
export function toInputItems(items: SentItem[], contents: FileContent[]): InputItem[] {
  const files = contents.map(inlineFile);
  // The parts are visited in the order of the files.
  const partOf = (part: SentPart): UserContentPart[] => (part.type === 'file' ? files.splice(0, 1) : [part]);
  return items.map((item): InputItem => {
    if (item.type !== 'user.message') return toAnswer(item);
    const { type, content } = item;
    return { type, content: typeof content === 'string' ? content : content.flatMap(partOf) };
  });
}

/** An answer in the engine's form. */
export function toAnswer(item: ActionsBody['input'][number]): Answer {
  const call = { threadId: item.thread_id, toolCallId: item.tool_call_id };
  if (item.type === 'user.tool_response') return { type: item.type, ...call, content: item.content };
  return { type: item.type, ...call, approval: approvalOf(item.approval) };
}

/** The rules that are to be made beside the decisions of an input. */
export function rulesIn(items: SentItem[]): RuleToRemember[] {
  return items.flatMap((item, i): RuleToRemember[] => {
    if (item.type !== 'user.tool_approval' || !item.approval.remember) return [];
    const { status: effect, remember } = item.approval;
    const { scope, rule, expires_in_seconds: seconds } = remember;
    return [
      {
        threadId: item.thread_id,
        toolCallId: item.tool_call_id,
        effect,
        scope,
        rule: rule ?? undefined,
        expiresInSeconds: seconds ?? undefined,
        param: `input.${i}.approval.remember`,
      },
    ];
  });
}
