import type { BlobStore } from '../blobs/blob-store.ts';
import { keepFiles } from '../blobs/keep-files.ts';
import type { InputItem, UserContentPart } from '../log/records.ts';
import type { CreateTurnBody } from '../wire/input.ts';
import { ApiError } from './errors.ts';

/** Files of one input inside its record: they come back on one line of the stream, with all of its texts. */
const MAX_INLINE_BYTES = 256 * 1024;

type SentItem = NonNullable<CreateTurnBody['input']>[number];
type SentMessage = Extract<SentItem, { type: 'user.message' }>;
type SentPart = Exclude<SentMessage['content'], string>[number];

/** Whether somebody decides on tool calls, and does nothing else. */
export function isDecision(items: SentItem[]): boolean {
  return items.length > 0 && items.every(({ type }) => type === 'user.tool_approval');
}

/** Checks what needs no session. @throws ApiError */
export function checkInput(items: SentItem[]): void {
  const messages = items.filter((item) => item.type === 'user.message');
  if (messages.length > 0 && messages.length < items.length) {
    throw new ApiError('mixed_input', 'send either user messages or answers to tool calls, not both', {
      param: 'input',
    });
  }
  for (const [i, message] of messages.entries()) checkMessage(message, `input.${i}.content`);
}

function checkMessage({ content }: SentMessage, param: string): void {
  const parts: SentPart[] = typeof content === 'string' ? [{ type: 'text', text: content }] : content;
  for (const [i, part] of parts.entries()) {
    if (part.type === 'file') parseDataUri(part.data, `${param}.${i}.data`);
  }
  if (parts.every((part) => part.type === 'text' && part.text.trim() === '')) {
    throw new ApiError('empty_message', 'a user message must have some text or a file', { param });
  }
}

/** The input as the log keeps it: files in the blob store, but for small ones. */
export async function keepInput(
  items: SentItem[],
  { blobs, sessionId }: { blobs: BlobStore; sessionId: string },
): Promise<InputItem[]> {
  const sent = items.flatMap((item) =>
    item.type === 'user.message' && typeof item.content !== 'string'
      ? item.content.flatMap((part) => (part.type === 'file' ? [part] : []))
      : [],
  );
  const contents = sent.map(({ name, data }) => ({ name, ...parseDataUri(data, 'data') }));
  const kept = await keepFiles(contents, { blobs, sessionId, maxInlineBytes: MAX_INLINE_BYTES });
  const files = new Map(sent.map((part, i) => [part, kept.slice(i, i + 1)]));
  return items.map((item): InputItem => {
    switch (item.type) {
      case 'user.message': {
        const { type, content } = item;
        if (typeof content === 'string') return { type, content };
        const partOf = (part: SentPart): UserContentPart[] => (part.type === 'text' ? [part] : (files.get(part) ?? []));
        return { type, content: content.flatMap(partOf) };
      }
      case 'user.tool_approval': {
        const { type, thread_id: threadId, tool_call_id: toolCallId, approval } = item;
        if (approval.status === 'allow') return { type, threadId, toolCallId, approval };
        const { status, reason } = approval;
        return { type, threadId, toolCallId, approval: { status, ...(reason && { reason }) } };
      }
      case 'user.tool_response': {
        const { type, thread_id: threadId, tool_call_id: toolCallId, content } = item;
        return { type, threadId, toolCallId, content };
      }
    }
  });
}

/** @throws ApiError `invalid_data_uri` */
function parseDataUri(uri: string, param: string): { mimeType: string; base64: string } {
  const comma = uri.indexOf(',');
  const [, mimeType] =
    /^data:([\w.+-]{1,127}\/[\w.+-]{1,127})(?:;[\w-]+=[^;,]*)*;base64$/i.exec(uri.slice(0, comma)) ?? [];
  const base64 = uri.slice(comma + 1);
  if (comma < 0 || !mimeType || base64.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(base64)) {
    throw new ApiError('invalid_data_uri', `${param} must be data:<mime type>;base64,<payload>`, { param });
  }
  return { mimeType: mimeType.toLowerCase(), base64 };
}
