import type { MessageText } from '../../core/message.ts';
import type { MadeImage, ModelMessage, SpokenAudio, StoredFile, ToolCall, Usage } from '../../core/records.ts';
import { parseJson } from '../../tools/arguments.ts';
import { audioFormat } from '../../core/audio-formats.ts';
import { kindsOf, type KindOfTokens } from './pricing.ts';
import { encodeSignature } from './signature.ts';
import type { ModelPart, ModelUsage, ResultPart } from './wire/run.ts';

/**
 * The parts of a message: its reasoning, its text, each call, its images, and what the model has said. The log does not keep in
 * which order they began. A refusal is not a part.
 */
export function contentOf(message: ModelMessage): ModelPart[] {
  const { reasoning, content, toolCalls } = message;
  const parts: ModelPart[] = [
    ...(reasoning ? [{ type: 'reasoning' as const, text: reasoning }] : []),
    ...(content ? [{ type: 'text' as const, text: content }] : []),
  ];
  const holder = parts.length > 0 && (reasoning || toolCalls.length === 0) ? 0 : parts.length;
  const first = parts.length;
  parts.push(...toolCalls.map(callPart));
  parts.push(...(message.images ?? []).map((image) => drawnPart(message, image)));
  if (message.audio) parts.push(spokenPart(message.audio));
  return parts.map((part, index) => {
    if (part.type === 'audio' || part.type === 'image') return part;
    const signature = signatureOf(message, {
      isHolder: index === holder,
      call: index < first ? undefined : toolCalls[index - first],
    });
    return signature === undefined ? part : { ...part, signature };
  });
}

/** The index of the first call among the parts of a message. */
export function firstCallIndex({ reasoning, content }: Pick<MessageText, 'reasoning' | 'content'>): number {
  return (reasoning ? 1 : 0) + (content ? 1 : 0);
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

function callPart({ id, name, arguments: text }: ToolCall): ModelPart {
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

/** The signature of a part. The fields of the whole message are with its reasoning, else with its first call. */
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

/** The arguments of a call as an object. `raw`: what the model wrote, if that is none. */
export function argumentsOf(text: string): { args: Record<string, unknown>; raw?: string } {
  if (text.trim() === '') return { args: {} };
  const parsed = parseJson(text);
  const value = 'value' in parsed ? parsed.value : undefined;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return { args: {}, raw: text };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an object of JSON
  return { args: value as Record<string, unknown> };
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

/** Readers take all tokens for text unless they are told how many of them are; where all are, they are not told. */
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
