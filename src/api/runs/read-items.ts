import { inlineFile } from '../../blobs/store-files.ts';
import type { GivenCall, GivenConversation, GivenMessage } from '../../core/given-conversation.ts';
import type { UserContentPart } from '../../core/records/input.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import type { ToolOutcome } from '../../core/records/results.ts';
import { ROOT_THREAD } from '../../core/records/threads.ts';
import { applySections, storedSections } from '../../core/sections.ts';
import { outcomeText } from '../../core/tool-records.ts';
import type { TranscriptItem } from '../../core/transcript.ts';
import type { ApiError } from '../http/errors.ts';
import type { ModelChunk } from '../../models/provider.ts';
import { SectionDeltas } from '../../models/section-deltas.ts';
import { type FieldPath, pathText, refusal, RUN_ERRORS } from './errors.ts';
import { audioType } from '../../core/audio-formats.ts';
import { toCitation, toHosted } from './hosted-parts.ts';
import { readResultContent } from './result-content.ts';
import { decodeSignature, type SignedFields } from './signature.ts';
import { requireSupported, sourceContent, type AcceptedInput } from './supported-parts.ts';
import type { RunInputItem } from './wire/items.ts';
import type { CallStatus, InputPart, ResultContent } from './wire/parts.ts';

type Content = InputPart[];
type Image = Extract<InputPart, { type: 'image' }>;

/** A message with its path; the results of a model's message belong to its calls. */
type Entry =
  | { role: 'user'; content: UserContentPart[] }
  | {
      role: 'model';
      message: GivenMessage;
      calls: ReadonlyMap<string, GivenCall>;
      id?: string | null | undefined;
      fieldPath: FieldPath;
    };

/** The parts that a message may have, by its role. */
const ALLOWED: Record<'user' | 'assistant' | 'tool', readonly InputPart['type'][]> = {
  user: ['text', 'image', 'audio', 'source'],
  assistant: ['text', 'image', 'audio', 'reasoning', 'tool-call', 'tool-result'],
  tool: ['tool-result'],
};

const OUTCOMES: Record<CallStatus, ToolOutcome> = { completed: 'succeeded', failed: 'failed', cancelled: 'cancelled' };

/** Calls without a result, before the last message. The Temporal history has their ids, each in up to 67 bytes. */
const MAX_REPAIRED = 1_000;

/** The last message with its results is one result of an activity, which has at most 124 KiB without long texts. */
const MAX_LAST_BYTES = 120 * 1024;

/** The bytes that such a result has for each call beside the client's: its tool and how it is executed. */
const CALL_BYTES = 300;

/** The reference to an image that is moved to the blob store. */
const IMAGE_BYTES = 100;

/** Longer texts are moved to the blob store, which leaves less than this. */
const MOVED_LENGTH = 1024;

/**
 * The conversation that a client gives as items: see `docs/runs-api.md`. `repaired` are the calls without a result that
 * cannot be executed because a message follows: the model sees them as cancelled. `lastItemId` is the id of the last
 * item, if it is a model's message.
 * @throws ApiError `invalid_items` or `unsupported_part`
 */
export function readItems(
  input: RunInputItem[],
  accepted: AcceptedInput,
): {
  conversation: GivenConversation;
  repaired: string[];
  lastItemId: string | undefined;
} {
  const entries: Entry[] = [];
  for (const [i, item] of input.entries()) addItem(entries, item, { fieldPath: ['input', i], accepted });
  const last = entries.at(-1);
  if (!last) throw refusal(RUN_ERRORS.invalid_items, ['input'], 'must have a message');
  const earlier = last.role === 'model' ? entries.slice(0, -1) : entries;
  if (last.role === 'model' && bytesOf(last.message) > MAX_LAST_BYTES) {
    throw invalid(
      last.fieldPath,
      'has too many tool calls or images for the last message of a model: at most about 300 are possible',
    );
  }
  const repaired = earlier.flatMap((entry) => (entry.role === 'model' ? danglingCalls(entry.message) : []));
  if (repaired.length > MAX_REPAIRED) {
    throw invalid(['input'], `has more than ${MAX_REPAIRED} tool calls without a result: add their results`);
  }
  return {
    conversation: { items: earlier.flatMap(toItems), ...(last.role === 'model' && { last: last.message }) },
    repaired,
    lastItemId: last.role === 'model' ? (last.id ?? undefined) : undefined,
  };
}

/** The bytes of a message and its results in the Temporal history. */
function bytesOf({ toolCalls, images = [] }: GivenMessage): number {
  const withoutLong = (_: string, value: unknown) =>
    typeof value === 'string' && value.length >= MOVED_LENGTH ? '' : value;
  const drawn = Buffer.byteLength(JSON.stringify(images, withoutLong)) + images.length * IMAGE_BYTES;
  return toolCalls.reduce((bytes, call) => {
    const { name, result } = call;
    // The record of its tool contains the name, and so does the result that there is no such tool.
    return bytes + Buffer.byteLength(JSON.stringify(call, withoutLong) + name + name) + CALL_BYTES * (result ? 2 : 1);
  }, drawn);
}

interface ItemContext {
  fieldPath: FieldPath;
  accepted: AcceptedInput;
}

function addItem(entries: Entry[], item: RunInputItem, at: ItemContext): void {
  const { fieldPath } = at;
  if (item.type === 'tool') {
    addResult(entries, { ...item, ...at, contentPath: [...fieldPath, 'output'] });
    return;
  }
  const role = item.type === 'model' ? 'assistant' : item.role;
  const { content } = item;
  const contentPath = [...fieldPath, 'content'];
  for (const [j, part] of content.entries()) requireAllowed(part, role, [...contentPath, j]);
  if (content.every(isBlank)) throw invalid(contentPath, 'must have a part that is not blank');
  switch (role) {
    case 'user':
      entries.push({ role: 'user', content: userContent(content, { ...at, fieldPath: contentPath }) });
      return;
    case 'assistant':
      entries.push({ ...modelEntry(content, at), ...(item.type === 'model' && { id: item.id }) });
      return;
    case 'tool':
      for (const [j, part] of content.entries()) {
        if (part.type !== 'tool-result' || part.hosted) continue;
        const partPath = [...contentPath, j];
        addResult(entries, {
          ...part,
          accepted: at.accepted,
          fieldPath: partPath,
          contentPath: [...partPath, 'content'],
        });
      }
  }
}

function requireAllowed(part: InputPart, role: keyof typeof ALLOWED, fieldPath: FieldPath): void {
  // A result of a provider's own tool is a part of the model's message.
  const isMisplaced = role === 'assistant' && part.type === 'tool-result' && !part.hosted;
  if (ALLOWED[role].includes(part.type) && !isMisplaced) return;
  const allowed =
    role === 'assistant' ? 'everything except sources and results of functions' : ALLOWED[role].join(', ');
  throw invalid(fieldPath, `a message of the role ${role} may not have this ${part.type}; it may have: ${allowed}`);
}

function isBlank(part: InputPart): boolean {
  return part.type === 'text' && part.text.trim() === '';
}

function userContent(content: Content, { fieldPath, accepted }: ItemContext): UserContentPart[] {
  for (const [j, part] of content.entries()) requireSupported(part, [...fieldPath, j], { author: 'user', accepted });
  const parts = content.flatMap((part): Content => (part.type === 'source' ? sourceContent(part) : [part]));
  const count = { image: 0, audio: 0 };
  return parts.flatMap((part): UserContentPart[] => {
    if (part.type === 'text') return [{ type: 'text', text: part.text }];
    if (part.type !== 'image' && part.type !== 'audio') return [];
    count[part.type] += 1;
    const name = `${part.type}-${count[part.type]}`;
    return part.type === 'image'
      ? [inlineFile({ name, mimeType: part.mime_type, base64: part.data })]
      : [{ ...inlineFile({ name, mimeType: audioType(part.format), base64: part.data }), asAudio: true }];
  });
}

function modelEntry(content: Content, { fieldPath, accepted }: ItemContext): Entry {
  const message: GivenMessage = { content: '', refusal: '', reasoning: '', toolCalls: [] };
  const sections = new SectionDeltas();
  const calls = new Map<string, GivenCall>();
  for (const [j, part] of content.entries()) {
    const partPath = [...fieldPath, 'content', j];
    requireSupported(part, partPath, { author: 'model', accepted });
    const signed = addSigned(message, part);
    if (part.type === 'image') addImage(message, { part, fields: signed?.part });
    addText(message, part, sections);
    if (part.type !== 'tool-call' || part.hosted) continue;
    const { id, name, arguments: args } = part;
    if (calls.has(id)) throw invalid([...partPath, 'tool_call_id'], `another call of the message has the id ${id}`);
    const call: GivenCall = { id, name, arguments: args, ...(signed?.call && { providerFields: signed.call }) };
    calls.set(id, call);
    message.toolCalls.push(call);
  }
  return { role: 'model', message, calls, fieldPath };
}

function addImage(message: GivenMessage, { part, fields }: { part: Image; fields: SignedFields['part'] }): void {
  const images = (message.images ??= []);
  const file = inlineFile({ name: `image-${images.length + 1}`, mimeType: part.mime_type, base64: part.data });
  images.push({ file, ...(fields && { providerFields: fields }) });
}

/** Adds the text of a part, and what the provider did itself, in their order. */
function addText(message: GivenMessage, part: InputPart, sections: SectionDeltas): void {
  const chunk: ModelChunk = {
    ...(part.type === 'text' && {
      begins: 'text',
      content: part.text,
      citations: (part.citations ?? []).map(toCitation),
    }),
    ...(part.type === 'audio' && { begins: 'text', content: part.transcript ?? '' }),
    ...(part.type === 'reasoning' && { begins: 'reasoning', reasoning: part.text }),
    ...('hosted' in part && part.hosted && { hosted: [toHosted(part)] }),
  };
  const begun = sections.before(chunk, message);
  if (begun.length > 0) applySections((message.sections ??= []), begun);
  message.content += chunk.content ?? '';
  message.reasoning += chunk.reasoning ?? '';
  const more = sections.after(chunk, message);
  if (more.length > 0) applySections((message.sections ??= []), more);
}

/** Adds the provider's fields of a part to its message. All parts of a message are from one model. */
function addSigned(message: GivenMessage, part: InputPart): SignedFields | undefined {
  const signed = 'signature' in part && part.signature ? decodeSignature(part.signature) : undefined;
  if (!signed) return undefined;
  const { provider, model, message: fields } = signed;
  if (message.provider !== undefined && (message.provider !== provider || message.model !== model)) return undefined;
  message.provider = provider;
  if (model !== undefined) message.model = model;
  if (fields) message.providerFields = fields;
  return signed;
}

interface Result extends ItemContext {
  id: string;
  content: ResultContent;
  status: CallStatus;
  contentPath: FieldPath;
}

/** Adds a result to its call, which is in the message before the results. */
function addResult(entries: Entry[], { id, content, status, fieldPath, contentPath, accepted }: Result): void {
  const idPath = [...fieldPath, 'tool_call_id'];
  const message = entries.at(-1);
  if (message?.role !== 'model') {
    throw invalid(
      idPath,
      'there is no message of a model before this result: results follow the message with their calls',
    );
  }
  const call = message.calls.get(id);
  if (!call) throw invalid(idPath, `${pathText(message.fieldPath)} has no call with the id ${id}`);
  for (const [i, part] of content.entries()) {
    requireSupported(part, [...contentPath, i], { author: 'result', accepted });
  }
  const given = readResultContent(content);
  // Items of runs are empty for calls that were cancelled.
  if (status === 'cancelled' && given.content === '') given.content = outcomeText('cancelled');
  call.result ??= { outcome: OUTCOMES[status], ...given };
}

function danglingCalls({ toolCalls }: GivenMessage): string[] {
  return toolCalls.flatMap(({ id, result }) => (result ? [] : [id]));
}

function toItems(entry: Entry): TranscriptItem[] {
  if (entry.role === 'user') return [entry];
  const { message } = entry;
  // Providers reject a message of a model without content and calls.
  if (message.content.trim() === '' && !message.images && message.toolCalls.length === 0) return [];
  const results = message.toolCalls.map(({ id: toolCallId, name, result }): TranscriptItem => {
    const { content = outcomeText('cancelled'), files = [] } = result ?? {};
    return { role: 'tool', toolCallId, name, content, files };
  });
  return [{ role: 'assistant', message: modelMessage(message) }, ...results];
}

/** A message as the transcript has it. Models get neither its id nor its time. */
function modelMessage({ toolCalls, sections, ...text }: GivenMessage): ModelMessage {
  return {
    kind: 'model.message',
    id: '',
    at: '',
    threadId: ROOT_THREAD,
    ...text,
    ...storedSections(sections),
    toolCalls: toolCalls.map((given) => {
      const { result: _, ...call } = given;
      return { ...call, info: { type: 'system', name: call.name }, route: { to: 'answered' } };
    }),
    finishReason: toolCalls.length > 0 ? 'tool_calls' : 'stop',
  };
}

function invalid(fieldPath: FieldPath, message: string): ApiError {
  return refusal(RUN_ERRORS.invalid_items, fieldPath, message);
}
