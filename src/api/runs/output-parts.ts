import type { MessageText } from '../../core/message.ts';
import type { ToolCall } from '../../core/records/calls.ts';
import type { StoredFile } from '../../core/records/input.ts';
import type { MadeImage, ModelMessage, SpokenAudio } from '../../core/records/message.ts';
import type { Usage } from '../../core/records/usage.ts';
import { orderedParts, textOf, type OrderedPart } from '../../core/sections.ts';
import { parseJsonObject } from '../../tools/arguments.ts';
import { audioFormat } from '../../core/audio-formats.ts';
import { citationOf, hostedPart } from './hosted-parts.ts';
import { kindsOf, type KindOfTokens } from './pricing.ts';
import { encodeSignature } from './signature.ts';
import type { ModelPart, ModelUsage, ResultPart } from './wire/run.ts';

/**
 * The parts of a message in the order in which they began, as far as the log has this order, then its images and its
 * audio. A refusal is not a part.
 */
export function toModelParts(message: ModelMessage): ModelPart[] {
  const text = textOf(message);
  const placed = orderedParts(text);
  const holder = holderOf(placed);
  const parts = placed.map((one, index): ModelPart => {
    const call = one.type === 'call' ? message.toolCalls[one.index] : undefined;
    const part = call ? callPart(call) : textPart(text, one);
    const signature = signatureOf(message, { isHolder: index === holder, call });
    return signature === undefined || part.type === 'tool-result' ? part : { ...part, signature };
  });
  parts.push(...(message.images ?? []).map((image) => drawnPart(message, image)));
  if (message.audio) parts.push(spokenPart(message.audio));
  return parts;
}

/** The index of the part with the fields of the whole message: the first reasoning, else the first call or part. */
function holderOf(placed: OrderedPart[]): number {
  const reasoning = placed.findIndex(({ type }) => type === 'reasoning');
  return Math.max(0, reasoning < 0 ? placed.findIndex(({ type }) => type === 'call') : reasoning);
}

/** A part that is not a medium. */
type WrittenPart = Exclude<ModelPart, { type: 'audio' | 'image' }>;

function textPart({ reasoning, content }: MessageText, placed: OrderedPart): WrittenPart {
  switch (placed.type) {
    case 'call':
      throw new Error('the message has no such call');
    case 'hosted':
      return hostedPart(placed.hosted);
    case 'reasoning':
      return { type: 'reasoning', text: reasoning.slice(placed.from, placed.to) };
    case 'content': {
      const { from, to, citations } = placed;
      const text = content.slice(from, to);
      return { type: 'text', text, ...(citations.length > 0 && { citations: citations.map(citationOf) }) };
    }
  }
}

function drawnPart({ provider, model }: ModelMessage, { file, providerFields: part }: MadeImage): ModelPart {
  const origin = provider !== undefined && part ? { provider, ...(model !== undefined && { model }), part } : undefined;
  return {
    type: 'image',
    mime_type: file.mimeType,
    data: contentOfFile(file),
    ...(origin && { signature: encodeSignature(origin) }),
  };
}

function spokenPart({ file, transcript, id, sampleRate, channels }: SpokenAudio): ModelPart {
  return {
    type: 'audio',
    format: audioFormat(file.mimeType) ?? 'linear16',
    data: contentOfFile(file),
    ...(sampleRate !== undefined && { sample_rate: sampleRate }),
    ...(channels !== undefined && { channels }),
    ...(transcript && { transcript }),
    ...(id !== undefined && { id }),
  };
}

function contentOfFile(file: StoredFile): string {
  if (!('base64' in file)) throw new Error(`the content of ${file.name} was not loaded`);
  return file.base64;
}

function callPart({ id, name, arguments: text }: ToolCall): WrittenPart {
  const { args, raw } = argumentsOf(text);
  return {
    type: 'tool-call',
    tool_call_id: id,
    tool_name: name,
    args,
    call: { type: 'function', name, args },
    ...(raw !== undefined && { raw_args: raw }),
  };
}

function signatureOf(
  { provider, model, providerFields }: ModelMessage,
  { isHolder, call }: { isHolder: boolean; call: ToolCall | undefined },
): string | undefined {
  const message = isHolder ? providerFields : undefined;
  if (provider === undefined || (!message && !call?.providerFields)) return undefined;
  return encodeSignature({
    provider,
    ...(model !== undefined && { model }),
    ...(message && { message }),
    ...(call?.providerFields && { call: call.providerFields }),
  });
}

/** The arguments of a call as an object. `raw`: the text of the model, if it is not an object. */
export function argumentsOf(text: string): { args: Record<string, unknown>; raw?: string } {
  if (text.trim() === '') return { args: {} };
  const args = parseJsonObject(text);
  return args ? { args } : { args: {}, raw: text };
}

/** Token counts as llm-sdk has them; undefined if the provider has not reported any. */
export function usageToWire(usage: Usage): ModelUsage | undefined {
  const { inputTokens, outputTokens } = usage;
  if (inputTokens + outputTokens === 0) return undefined;
  const kinds = kindsOf(usage);
  const input = detailsOf(kinds.map(({ kind, input: tokens, cached }) => ({ kind, tokens, cached })));
  const output = detailsOf(kinds.map(({ kind, output: tokens }) => ({ kind, tokens, cached: 0 })));
  return {
    input_tokens: inputTokens,
    output_tokens: outputTokens,
    ...(input && { input_tokens_details: input }),
    ...(output && { output_tokens_details: output }),
  };
}

/** Clients count all tokens as text if `text_tokens` is absent, so it is omitted when all are. */
function detailsOf(
  kinds: { kind: KindOfTokens['kind']; tokens: number; cached: number }[],
): ModelUsage['input_tokens_details'] {
  const isText = kinds.every(({ kind, tokens }) => kind === 'text' || tokens === 0);
  const counts = kinds.flatMap(({ kind, tokens, cached }) => [
    { name: `${kind}_tokens`, tokens, isShown: kind === 'text' ? !isText : tokens > 0 },
    { name: `cached_${kind}_tokens`, tokens: cached, isShown: cached > 0 },
  ]);
  const shown = counts.filter(({ isShown }) => isShown);
  return shown.length > 0 ? Object.fromEntries(shown.map(({ name, tokens }) => [name, tokens])) : undefined;
}

/** The parts of a tool's result: its text, and the images and audio among its files. */
export function resultParts(text: string, files: StoredFile[] = []): ResultPart[] {
  return [...(text ? [{ type: 'text' as const, text }] : []), ...files.flatMap(filePart)];
}

function filePart(file: StoredFile): ResultPart[] {
  const { mimeType } = file;
  const format = audioFormat(mimeType);
  if (!isMedia(file)) return [];
  const data = contentOfFile(file);
  return format === undefined ? [{ type: 'image', mime_type: mimeType, data }] : [{ type: 'audio', format, data }];
}

/** Whether a file of a result becomes a part of it. */
export function isMedia({ mimeType }: StoredFile): boolean {
  return mimeType.startsWith('image/') || audioFormat(mimeType) !== undefined;
}
