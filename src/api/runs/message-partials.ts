import {
  applyDelta,
  emptyText,
  wholeDelta,
  type MessageDelta,
  type MessageText,
  type ToolCallDelta,
} from '../../core/message.ts';
import { orderedParts, type OrderedPart, type SectionDelta } from '../../core/sections.ts';
import { citationOf, toHostedCall, toHostedResult } from './hosted-parts.ts';
import type { ModelPart, PartDelta } from './wire/run.ts';

export interface IndexedDelta {
  index: number;
  part: PartDelta;
}

/** The lengths of the texts of a message that the client has. */
type Had = Record<'reasoning' | 'content', number>;

const NOTHING: Had = { reasoning: 0, content: 0 };

/**
 * Translates the deltas of a message in progress to those of its parts. The index of a part is its position in the
 * item. A model may begin a part that belongs before an existing one; the message starts over then.
 */
export class MessagePartials {
  readonly id: string;
  readonly #text: MessageText = emptyText();
  /** The keys of the parts so far. */
  #parts: string[] = [];

  constructor(id: string) {
    this.id = id;
  }

  /** The deltas of the parts. `isReset`: they are of the whole message so far, in another order. */
  add(delta: MessageDelta): { deltas: IndexedDelta[]; isReset: boolean } {
    const { reasoning, content } = this.#text;
    const had = { reasoning: reasoning.length, content: content.length };
    applyDelta(this.#text, delta);
    const parts = orderedParts(this.#text);
    const keys = parts.map(keyOf);
    const isReset = this.#parts.some((key, index) => keys[index] !== key);
    this.#parts = keys;
    const deltas = isReset ? deltasOf(parts, wholeDelta(this.#text), NOTHING) : deltasOf(parts, delta, had);
    return { deltas, isReset };
  }
}

function keyOf(part: OrderedPart): string {
  return part.type === 'call' ? `call ${part.index}` : `${part.type} ${part.section}`;
}

/** What a delta adds to each part. */
function deltasOf(parts: OrderedPart[], delta: MessageDelta, had: Had): IndexedDelta[] {
  return parts.flatMap((part, index): IndexedDelta[] =>
    addedTo(part, delta, had).map((added) => ({ index, part: added })),
  );
}

function addedTo(placed: OrderedPart, delta: MessageDelta, had: Had): PartDelta[] {
  if (placed.type === 'call') {
    const added = (delta.toolCalls ?? []).filter(({ index }) => index === placed.index);
    return added.flatMap((call) => callDelta(call) ?? []);
  }
  const { type, section } = placed;
  const sections = (delta.sections ?? []).filter(({ index }) => index === section);
  if (type === 'hosted') return sections.flatMap((one) => hostedDelta(one) ?? []);
  const [from, to] = [placed.from - had[type], placed.to - had[type]].map((at) => Math.max(0, at));
  const text = (delta[type] ?? '').slice(from, to);
  if (type === 'reasoning') return text ? [{ type, text }] : [];
  const citations = sections.flatMap((one) => one.citations ?? []);
  return [
    ...(text ? [{ type: 'text' as const, text }] : []),
    ...citations.map((one) => ({
      type: 'text' as const,
      text: '',
      citation: { type: 'citation' as const, ...citationOf(one) },
    })),
  ];
}

/** Id and name are in the first delta of a call. Undefined if the delta has nothing for the client. */
function callDelta({ id, name, arguments: args }: ToolCallDelta): PartDelta | undefined {
  if (!id && !args) return undefined;
  return {
    type: 'tool-call',
    ...(id && { tool_call_id: id }),
    ...(name && { tool_name: name }),
    ...(args && { args }),
    call: { type: 'function', ...(name && { name }), ...(args && { args }) },
  };
}

/** The id is in the first delta of a provider's call. A result has a single delta. */
function hostedDelta({ start, hosted }: SectionDelta): PartDelta | undefined {
  if (hosted?.type !== 'call') return hosted && toHostedResult(hosted);
  const { tool_call_id, ...call } = toHostedCall(hosted);
  return { ...call, ...(start && { tool_call_id }) };
}

/** The deltas at the end of a message: its audio, its images, and the signatures of the parts. */
export function endDeltas(content: ModelPart[]): IndexedDelta[] {
  return content.flatMap((part, index): IndexedDelta[] => {
    if (part.type === 'audio' || part.type === 'image') return [{ index, part }];
    if (part.type === 'tool-result' || part.signature === undefined) return [];
    const { type, signature } = part;
    return [{ index, part: type === 'tool-call' ? { type, signature } : { type, text: '', signature } }];
  });
}
