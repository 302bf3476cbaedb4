import { USABLE_ID } from '../core/ids.ts';
import type { MessageText } from '../core/message.ts';
import {
  FIRST_SECTION,
  type Citation,
  type HostedPart,
  type Section,
  type SectionDelta,
  type SectionStart,
} from '../core/sections.ts';
import type { ModelChunk } from './provider.ts';

/** Limits for one message: many times what providers send. Parts above them are left out, and the text is kept. */
const MAX_SECTIONS = 500;
const MAX_CITATIONS = 1_000;
const MAX_BYTES = 1024 * 1024;

/** A larger one would not fit into a frame of the live bus. */
const MAX_PART_BYTES = 100 * 1024;

/** How many sources are kept of a larger part, each as an address and a title. */
const MAX_SOURCES = 100;

/** The fields of a message in progress that determine its sections. */
type Progress = Pick<MessageText, 'content' | 'reasoning' | 'sections'> & { toolCalls: readonly unknown[] };

/** Divides a message in progress into sections: see `src/core/sections.ts`. */
export class SectionDeltas {
  /** A part that has begun, and has no text yet. */
  #begun: ModelChunk['begins'];
  /** The sections of hosted parts. */
  readonly #hosted = new Map<string, number>();
  #count = 0;
  #citations = 0;
  #bytes = 0;

  /** The sections that the text of a chunk begins; called before it is added to `text`. */
  before({ begins, content, reasoning }: ModelChunk, text: Progress): SectionDelta[] {
    this.#begun = begins ?? this.#begun;
    const begun = this.#begun;
    if (!begun || !(begun === 'text' ? content : reasoning)) return [];
    this.#begun = undefined;
    const last = text.sections?.at(-1) ?? FIRST_SECTION;
    const isAfter = text.content.length > last.content || text.toolCalls.length > last.toolCalls;
    return isAfter && this.#count < MAX_SECTIONS ? this.#next(text, {}) : [];
  }

  /** What a chunk adds beside its text; called after it is added to `text`. */
  after({ hosted = [], citations = [] }: ModelChunk, text: Progress): SectionDelta[] {
    return [
      ...(citations.length > 0 ? this.#cite(citations, text) : []),
      ...hosted.flatMap((part) => this.#add(part, text)),
    ];
  }

  #cite(citations: Citation[], text: Progress): SectionDelta[] {
    const sections: SectionStart[] = text.sections ?? [FIRST_SECTION];
    const index = sections.findLastIndex(
      ({ content }, i) => content < (sections[i + 1]?.content ?? text.content.length),
    );
    const fitting = citations.slice(0, MAX_CITATIONS - this.#citations).filter((one) => this.#fits(one));
    if (index < 0 || fitting.length === 0) return [];
    this.#citations += fitting.length;
    if (this.#count > 0) return [{ index, citations: fitting }];
    this.#count = 1;
    return [{ index, start: FIRST_SECTION, citations: fitting }];
  }

  #add(given: HostedPart, text: Progress): SectionDelta[] {
    const key = `${given.type} ${given.id}`;
    const known = this.#hosted.get(key);
    const part = bounded(given);
    if (!USABLE_ID.test(part.id) || !this.#fits(part)) return [];
    if (known !== undefined) return [{ index: known, hosted: part }];
    if (this.#count >= MAX_SECTIONS) return [];
    const deltas = this.#next(text, { hosted: part });
    this.#hosted.set(key, this.#count - 1);
    return deltas;
  }

  #next(text: Progress, more: Pick<Section, 'hosted'>): SectionDelta[] {
    const start = { reasoning: text.reasoning.length, content: text.content.length, toolCalls: text.toolCalls.length };
    const isFirst = start.reasoning + start.content + start.toolCalls === 0 || this.#count > 0;
    const before: SectionDelta[] = isFirst ? [] : [{ index: 0, start: FIRST_SECTION }];
    const index = this.#count + before.length;
    this.#count = index + 1;
    return [...before, { index, start, ...more }];
  }

  #fits(value: object): boolean {
    const bytes = Buffer.byteLength(JSON.stringify(value));
    if (bytes > MAX_PART_BYTES || this.#bytes + bytes > MAX_BYTES) return false;
    this.#bytes += bytes;
    return true;
  }
}

/** A result of which something was left out is not sent back to the provider. */
function bounded(part: HostedPart): HostedPart {
  if (part.type === 'call' || Buffer.byteLength(JSON.stringify(part)) <= MAX_PART_BYTES) return part;
  const sources = part.sources.slice(0, MAX_SOURCES).map((source) => {
    const { signature: _, ...rest } = source;
    return rest;
  });
  return { ...part, sources };
}
