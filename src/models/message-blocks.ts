import { z } from 'zod';
import type { ToolCall } from '../core/records/calls.ts';
import type { ModelMessage } from '../core/records/message.ts';
import { orderedParts, textOf, type Citation, type HostedPart } from '../core/sections.ts';

/**
 * The order in which a provider wrote the parts of a message, and the fields that belong to each, such as signatures.
 * They are kept in the message's provider fields, because a provider may reject reasoning that is sent back changed, or
 * in another position. The texts themselves are in the message: a block has the length of its part of them.
 */
const block = z.discriminatedUnion('type', [
  z.object({ type: z.enum(['reasoning', 'text']), length: z.int().min(0), fields: z.record(z.string(), z.unknown()) }),
  z.object({ type: z.literal('call') }),
  z.object({ type: z.literal('hosted'), fields: z.record(z.string(), z.unknown()) }),
]);

export type Block = z.infer<typeof block>;

const providerFields = z.object({ blocks: z.array(block) });

export type MessagePart =
  | { type: 'reasoning'; text: string; fields: Record<string, unknown> }
  | { type: 'text'; text: string; fields: Record<string, unknown>; citations: Citation[] }
  | { type: 'call'; call: ToolCall }
  | { type: 'hosted'; hosted: HostedPart; fields: Record<string, unknown> };

/** The provider fields of a message that add blocks to it. */
export function blockFields(...blocks: Block[]): { blocks: Block[] } {
  return { blocks };
}

/**
 * The parts of a message in the provider's order. If it has no blocks, or they do not cover it because it was cut off:
 * its text and its calls, without its reasoning and without what the provider did itself.
 */
export function partsOf(message: ModelMessage): MessagePart[] {
  const { content, refusal, reasoning, toolCalls } = message;
  const parsed = providerFields.safeParse(message.providerFields);
  const parts =
    parsed.success && !refusal
      ? partsIn(parsed.data.blocks, { reasoning, text: content }, { calls: [...toolCalls], ...placedIn(message) })
      : undefined;
  if (parts) return parts;
  const text = content || refusal;
  return [
    ...(text ? [{ type: 'text' as const, text, fields: {}, citations: [] }] : []),
    ...toolCalls.map((call) => ({ type: 'call' as const, call })),
  ];
}

/** Undefined if the blocks are not those of the whole message. */
function partsIn(
  blocks: Block[],
  rest: { reasoning: string; text: string },
  { calls, hosted, citations }: { calls: ToolCall[] } & ReturnType<typeof placedIn>,
): MessagePart[] | undefined {
  const parts: MessagePart[] = [];
  const whole = rest.text.length;
  for (const one of blocks) {
    if (one.type === 'call') {
      const call = calls.shift();
      if (!call) return undefined;
      parts.push({ type: 'call', call });
    } else if (one.type === 'hosted') {
      const part = hosted.shift();
      if (!part) return undefined;
      parts.push({ type: 'hosted', hosted: part, fields: one.fields });
    } else {
      const { type, length, fields } = one;
      const text = rest[type].slice(0, length);
      const from = whole - rest.text.length;
      parts.push(
        type === 'reasoning' ? { type, text, fields } : { type, text, fields, citations: citations.get(from) ?? [] },
      );
      rest[type] = rest[type].slice(length);
    }
  }
  const isWhole = !rest.reasoning && !rest.text && calls.length === 0 && hosted.length === 0;
  return isWhole && parts.length > 0 ? parts : undefined;
}

/** What the provider did itself, and the citations of the texts by the positions where these begin. */
function placedIn(message: ModelMessage): { hosted: HostedPart[]; citations: Map<number, Citation[]> } {
  const placed = orderedParts(textOf(message));
  return {
    hosted: placed.flatMap((part) => (part.type === 'hosted' ? [part.hosted] : [])),
    citations: new Map(placed.flatMap((part) => (part.type === 'content' ? [[part.from, part.citations]] : []))),
  };
}

/** Adds provider fields to those so far. Lists are sent in pieces and are concatenated; other values are replaced. */
export function mergeFields(known: Record<string, unknown>, more: Record<string, unknown>): Record<string, unknown> {
  const merged = { ...known };
  for (const [name, value] of Object.entries(more)) {
    const before = merged[name];
    merged[name] = Array.isArray(before) && Array.isArray(value) ? concatenated(before, value) : value;
  }
  return merged;
}

const thinkingPiece = z.looseObject({ type: z.literal('thinking'), thinking: z.string(), index: z.int() });

/** The pieces of one thinking block are joined: its signature, which comes last, is rejected with another text. */
function concatenated(before: unknown[], more: unknown[]): unknown[] {
  const list = [...before];
  for (const value of more) {
    const last = thinkingPiece.safeParse(list.at(-1)).data;
    const piece = thinkingPiece.safeParse(value).data;
    if (last && piece && last.index === piece.index) {
      list[list.length - 1] = { ...last, ...piece, thinking: last.thinking + piece.thinking };
    } else list.push(value);
  }
  return list;
}
