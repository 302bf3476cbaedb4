import type { UserContentPart } from '../core/records/input.ts';
import type { ModelMessage } from '../core/records/message.ts';
import type { TranscriptItem } from '../core/transcript.ts';
import { sha256 } from '../lib/hash.ts';
import type { ModelTarget } from './providers.ts';

/**
 * What providers accept in a conversation. Each rule comes from some provider, and is kept for all: a conversation may
 * continue with the model of another provider, and a rejected conversation is rejected for ever.
 */

const MAX_NAME_LENGTH = 64;

/** Models invent names of tools that providers reject, also in the message of the model. The result has the original name. */
export function acceptedName(name: string): string {
  return name.replaceAll(/[^a-zA-Z0-9_-]/g, '_').slice(0, MAX_NAME_LENGTH);
}

/** The id of a call for providers that accept no other characters; a call and its result get the same one. */
export function acceptedId(id: string): string {
  return /^[a-zA-Z0-9_-]+$/.test(id) ? id : `call_${sha256(id).slice(0, 32)}`;
}

export function isBlank(text: string): boolean {
  return text.trim() === '';
}

/** A turn without input continues the conversation; many models reject one that ends with a message of their own. */
const CONTINUE: TranscriptItem = { role: 'user', content: [{ type: 'text', text: 'Continue.' }] };

/** A conversation without blank texts of users, which does not end with a message of the model. */
export function acceptedConversation(items: TranscriptItem[]): TranscriptItem[] {
  const accepted = items.flatMap((item) => (item.role === 'user' ? withoutBlanks(item) : [item]));
  const last = accepted.at(-1);
  return !last || last.role === 'assistant' ? [...accepted, CONTINUE] : accepted;
}

function withoutBlanks(item: Extract<TranscriptItem, { role: 'user' }>): TranscriptItem[] {
  if (!item.content.some(isBlankPart)) return [item];
  const content = item.content.filter((part) => !isBlankPart(part));
  return content.length === 0 ? [] : [{ ...item, content }];
}

function isBlankPart(part: UserContentPart): boolean {
  return part.type === 'text' && isBlank(part.text);
}

/**
 * The conversation without the opaque fields of other providers and families of models: a provider rejects a signature
 * that it has not made, and must not get what another one has encrypted.
 */
export function withoutForeignFields(
  transcript: TranscriptItem[],
  target: Pick<ModelTarget, 'providerName' | 'model'>,
): TranscriptItem[] {
  return transcript.map((item) =>
    item.role !== 'assistant' || isOf(item.message, target) ? item : { ...item, message: withoutFields(item.message) },
  );
}

function isOf({ provider, model = '' }: ModelMessage, target: Pick<ModelTarget, 'providerName' | 'model'>): boolean {
  return provider === target.providerName && family(model) === family(target.model);
}

function withoutFields(message: ModelMessage): ModelMessage {
  const { providerFields: _, sections: __, toolCalls, images, ...rest } = message;
  const calls = toolCalls.map((call) => {
    const { providerFields: ___, ...own } = call;
    return own;
  });
  return { ...rest, toolCalls: calls, ...(images && { images: images.map(({ file }) => ({ file })) }) };
}

/** The name of a model without its version: `gpt-5-2025-08-07`, `claude-sonnet-4-5-20250929`, `claude-3-7-sonnet-latest`. */
function family(model: string): string {
  return model.replace(/-(?:latest|\d{8}|\d{4}-\d{2}-\d{2})$/, '');
}
