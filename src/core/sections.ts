import type { MessageText } from './message.ts';
import type { ModelMessage } from './records/message.ts';

/**
 * The order of the parts of a message. Its texts and its calls are each kept as a whole; sections divide them. A
 * section has at most one action of the provider itself, then at most one reasoning and one text, then any number of
 * calls. A message whose parts have this order is one section.
 */
export interface Section extends SectionStart {
  hosted?: HostedPart;
  /** The citations of its text, in the order of their arrival. */
  citations?: Citation[];
}

/** Where a section begins: the lengths of the texts before it, and the number of calls. */
export interface SectionStart {
  reasoning: number;
  content: number;
  toolCalls: number;
}

/** An action of the provider itself: it searched the web, or looked at a page. It is not a call of an agent's tool. */
export type HostedPart =
  | { type: 'call'; id: string; action?: SearchAction; status?: SearchStatus }
  /** The results of the call with the same id. */
  | { type: 'result'; id: string; sources: WebSource[]; errorCode?: string };

export type SearchAction =
  | { type: 'search'; queries: string[] }
  | { type: 'open_page'; url: string }
  | { type: 'find_in_page'; url: string; pattern: string };

export const SEARCH_STATUSES = ['in_progress', 'searching', 'completed', 'failed'] as const;

type SearchStatus = (typeof SEARCH_STATUSES)[number];

export interface WebSource {
  url: string;
  title?: string;
  pageAge?: string;
  /** The content for the provider alone, which expects it back. */
  signature?: string;
}

/** A source of a text. The indexes are those of the provider: usually of the cited passage in the text. */
export interface Citation {
  source: string;
  title?: string;
  citedText?: string;
  startIndex?: number;
  endIndex?: number;
  /** For the provider alone, which expects it back. */
  signature?: string;
}

/** What a chunk adds to a section. The first delta of a section has its start; a hosted part replaces the last one. */
export interface SectionDelta {
  index: number;
  start?: SectionStart;
  hosted?: HostedPart;
  citations?: Citation[];
}

export const FIRST_SECTION: SectionStart = { reasoning: 0, content: 0, toolCalls: 0 };

/** Folds deltas into sections, in place. */
export function applySections(sections: Section[], deltas: SectionDelta[]): void {
  for (const { index, start, hosted, citations } of deltas) {
    const known = sections[index] ?? start;
    if (!known || index > sections.length) throw new Error(`the first delta of section ${index} has no start`);
    const section: Section = { ...known };
    if (hosted) section.hosted = hosted;
    if (citations) section.citations = [...(section.citations ?? []), ...citations];
    sections[index] = section;
  }
}

/** A part of a message: a hosted one, a piece of one of its texts, or a call by its index. */
export type OrderedPart =
  | { type: 'hosted'; section: number; hosted: HostedPart }
  | { type: 'reasoning' | 'content'; section: number; from: number; to: number; citations: Citation[] }
  | { type: 'call'; index: number };

/** The parts of a message in their order. */
export function orderedParts(
  text: Pick<MessageText, 'reasoning' | 'content' | 'toolCalls' | 'sections'>,
): OrderedPart[] {
  const { sections = [] } = text;
  const all: readonly Section[] = sections.length > 0 ? sections : [FIRST_SECTION];
  const end = { reasoning: text.reasoning.length, content: text.content.length, toolCalls: text.toolCalls.length };
  return all.flatMap((start, section): OrderedPart[] => {
    const next = all[section + 1] ?? end;
    const { hosted, citations = [] } = start;
    const pieces = (['reasoning', 'content'] as const).flatMap((type): OrderedPart[] => {
      const piece = { type, section, from: start[type], to: next[type] };
      return piece.to > piece.from ? [{ ...piece, citations: type === 'content' ? citations : [] }] : [];
    });
    const calls = Math.max(0, next.toolCalls - start.toolCalls);
    return [
      ...(hosted ? [{ type: 'hosted' as const, section, hosted }] : []),
      ...pieces,
      ...Array.from({ length: calls }, (_, i) => ({ type: 'call' as const, index: start.toolCalls + i })),
    ];
  });
}

/** The sections of a message as its record has them. */
export function sectionsOf({ sections }: Pick<ModelMessage, 'sections'>): Section[] {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `storedSections`
  return sections === undefined ? [] : (JSON.parse(sections) as Section[]);
}

/** As one text, which is moved into the blob store as a whole: sources and citations consist of many small texts. */
export function storedSections(sections: Section[] = []): Pick<ModelMessage, 'sections'> {
  return sections.length > 0 ? { sections: JSON.stringify(sections) } : {};
}

/** The sections of a message that keeps only some of its calls, by their ids. */
export function keptSections({ sections = [], toolCalls }: MessageText, kept: ReadonlySet<string>): Section[] {
  return sections.map((section) => ({
    ...section,
    toolCalls: toolCalls.slice(0, section.toolCalls).filter(({ id }) => kept.has(id)).length,
  }));
}

/** A message as it was before its end. */
export function textOf({ content, refusal, reasoning, toolCalls, ...message }: ModelMessage): MessageText {
  const sections = sectionsOf(message);
  return { content, refusal, reasoning, toolCalls, ...(sections.length > 0 && { sections }) };
}
