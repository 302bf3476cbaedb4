import { cutPoint, jsonBytes } from './text.ts';
import type { ToolCall } from './records/calls.ts';
import { applySections, type HostedPart, type Section, type SectionDelta } from './sections.ts';

/** The part of a model message that grows while the message is in progress. */
export interface MessageText {
  content: string;
  refusal: string;
  reasoning: string;
  toolCalls: ToolCallText[];
  /** Absent: it is one section. */
  sections?: Section[];
}

export type ToolCallText = Omit<ToolCall, 'route'>;

/** What one chunk of a model's response adds. The first delta of a tool call has its `id`, `name` and `info`. */
export interface MessageDelta extends Partial<Pick<MessageText, 'content' | 'refusal' | 'reasoning'>> {
  toolCalls?: ToolCallDelta[];
  sections?: SectionDelta[];
}

export interface ToolCallDelta extends Partial<ToolCallText> {
  index: number;
}

export function emptyText(): Omit<MessageText, 'sections'> {
  return { content: '', refusal: '', reasoning: '', toolCalls: [] };
}

/** Folds a delta into `text`, in place. Clients fold with the same rules, so live text equals replayed text. */
export function applyDelta(text: MessageText, delta: MessageDelta): void {
  if (delta.content) text.content += delta.content;
  if (delta.refusal) text.refusal += delta.refusal;
  if (delta.reasoning) text.reasoning += delta.reasoning;
  for (const { index, id, name, info, arguments: args, providerFields } of delta.toolCalls ?? []) {
    let call = text.toolCalls[index];
    if (!call) {
      if (index !== text.toolCalls.length || !id || !name || !info) {
        throw new Error(`the first delta of tool call ${index} has no id, name or tool`);
      }
      call = { id, name, info, arguments: '' };
      text.toolCalls.push(call);
    }
    if (args) call.arguments += args;
    if (providerFields) call.providerFields = { ...call.providerFields, ...providerFields };
  }
  if (delta.sections) applySections((text.sections ??= []), delta.sections);
}

/**
 * Estimates the memory that a text or a part of one takes, in characters; at least 1, so that empty parts count too.
 */
export function charactersOf({
  content = '',
  refusal = '',
  reasoning = '',
  toolCalls = [],
  sections,
}: Omit<MessageDelta, 'toolCalls' | 'sections'> & {
  toolCalls?: Partial<ToolCallText>[];
  sections?: (Section | SectionDelta)[];
}): number {
  const rest = sections ? JSON.stringify(sections) : '';
  const texts = content.length + refusal.length + reasoning.length + rest.length;
  return toolCalls.reduce((sum, call) => sum + (call.arguments?.length ?? 0) + (call.id ? 500 : 0), texts + 1);
}

/** Whether `text` is a beginning of `message`. */
export function isBeginningOf(text: MessageText, message: MessageText): boolean {
  return (
    (['content', 'refusal', 'reasoning'] as const).every((field) => message[field].startsWith(text[field])) &&
    text.toolCalls.every((call, index) => isBeginningOfCall(call, message.toolCalls[index])) &&
    (text.sections ?? []).every((section, index) => isBeginningOfSection(section, message.sections?.[index]))
  );
}

function isBeginningOfCall(one: ToolCallText, whole: ToolCallText | undefined): boolean {
  const [fields, allFields] = [one, whole].map((call) => JSON.stringify(call?.providerFields));
  return (
    one.id === whole?.id && one.name === whole.name && whole.arguments.startsWith(one.arguments) && fields === allFields
  );
}

function isBeginningOfSection(one: Section, whole: Section | undefined): boolean {
  return (
    one.reasoning === whole?.reasoning &&
    one.content === whole.content &&
    one.toolCalls === whole.toolCalls &&
    one.hosted?.type === whole.hosted?.type &&
    one.hosted?.id === whole.hosted?.id &&
    (one.citations ?? []).length <= (whole.citations ?? []).length
  );
}

/** The lengths of the parts of a growing text that its reader has. */
export interface TextLengths {
  content: number;
  refusal: number;
  reasoning: number;
  /** The length of the arguments of each tool call. */
  toolCalls: number[];
  /** Each section's hosted part and the number of its citations. */
  sections: { hosted: HostedPart | undefined; citations: number }[];
}

export function lengthsOf({ content, refusal, reasoning, toolCalls, sections = [] }: MessageText): TextLengths {
  return {
    content: content.length,
    refusal: refusal.length,
    reasoning: reasoning.length,
    toolCalls: toolCalls.map((call) => call.arguments.length),
    sections: sections.map(({ hosted, citations = [] }) => ({ hosted, citations: citations.length })),
  };
}

/** The delta since `text` had these lengths: folded into the text at that time, it results in `text`. */
export function gainedSince(text: MessageText, had: TextLengths): MessageDelta {
  const toolCalls = text.toolCalls.flatMap((call, index): ToolCallDelta[] => {
    const length = had.toolCalls[index];
    if (length === undefined) return [{ index, ...call }];
    const { arguments: args, providerFields } = call;
    // Provider fields may arrive with any delta; receiving them twice changes nothing.
    return args.length > length || providerFields
      ? [{ index, arguments: args.slice(length), ...(providerFields && { providerFields }) }]
      : [];
  });
  const sections = sectionsSince(text, had.sections);
  return {
    content: text.content.slice(had.content),
    refusal: text.refusal.slice(had.refusal),
    reasoning: text.reasoning.slice(had.reasoning),
    ...(toolCalls.length > 0 && { toolCalls }),
    ...(sections.length > 0 && { sections }),
  };
}

function sectionsSince({ sections = [] }: MessageText, had: TextLengths['sections']): SectionDelta[] {
  return sections.flatMap(({ hosted, citations = [], ...start }, index): SectionDelta[] => {
    const known = had[index];
    const more = citations.slice(known?.citations ?? 0);
    const isNew = hosted && !(known?.hosted && isSameHosted(known.hosted, hosted));
    if (known && !isNew && more.length === 0) return [];
    return [{ index, ...(!known && { start }), ...(isNew && { hosted }), ...(more.length > 0 && { citations: more }) }];
  });
}

/** The results of a search are complete when they arrive; only the call may grow. */
function isSameHosted(one: HostedPart, other: HostedPart): boolean {
  return (
    one === other || (one.type === 'result' ? other.type === 'result' : JSON.stringify(one) === JSON.stringify(other))
  );
}

/**
 * Cuts `text` into as few deltas as possible, each of at most `maxBytes` inside a JSON string (UTF-8, escapes counted).
 * The fold of the result is `text` again.
 */
export function textDeltas(text: MessageText, maxBytes: number): MessageDelta[] {
  return splitDelta(wholeDelta(text), maxBytes);
}

/** The delta from nothing to `text`. */
export function wholeDelta(text: MessageText): MessageDelta {
  return gainedSince(text, lengthsOf(emptyText()));
}

/** Cuts a delta that is too large into several; see `textDeltas`. */
export function splitDelta(delta: MessageDelta, maxBytes: number): MessageDelta[] {
  const packer = new DeltaPacker(maxBytes);
  packer.string(delta.reasoning, (to, piece) => (to.reasoning = piece));
  packer.string(delta.content, (to, piece) => (to.content = piece));
  packer.string(delta.refusal, (to, piece) => (to.refusal = piece));
  for (const { arguments: args, ...head } of delta.toolCalls ?? []) {
    if (Object.keys(head).length > 1) packer.value(head, (to) => (to.toolCalls ??= []).push({ ...head }));
    packer.string(args, (to, piece) => {
      to.toolCalls ??= [];
      const last = to.toolCalls.at(-1);
      if (last?.index === head.index) last.arguments = piece;
      else to.toolCalls.push({ index: head.index, arguments: piece });
    });
  }
  for (const { citations = [], ...head } of delta.sections ?? []) {
    if (Object.keys(head).length > 1) packer.value(head, (to) => (to.sections ??= []).push({ ...head }));
    for (const citation of citations) {
      packer.value(citation, (to) => {
        to.sections ??= [];
        const last = to.sections.at(-1);
        if (last?.index === head.index) last.citations = [...(last.citations ?? []), citation];
        else to.sections.push({ index: head.index, citations: [citation] });
      });
    }
  }
  return packer.deltas;
}

/**
 * Bytes of the JSON around a piece: field names, braces, an index. An upper bound, so that a delta never exceeds its
 * limit.
 */
const PIECE_OVERHEAD = 64;

class DeltaPacker {
  readonly deltas: MessageDelta[] = [];
  #free = 0;
  readonly #maxBytes: number;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Adds a string, cut where a delta is full. */
  string(value: string | undefined, add: (delta: MessageDelta, piece: string) => void): void {
    if (!value) return;
    for (let from = 0; from < value.length;) {
      if (this.#free < PIECE_OVERHEAD * 2) this.#next();
      const to = cutPoint(value, from, this.#free - PIECE_OVERHEAD);
      const piece = value.slice(from, to);
      this.#free -= jsonBytes(piece) + PIECE_OVERHEAD;
      add(this.#last(), piece);
      from = to;
    }
  }

  /** Adds a value that cannot be cut. */
  value(value: unknown, add: (delta: MessageDelta) => void): void {
    // Doubled, since events carry the fields of a tool under two names.
    const bytes = 2 * jsonBytes(JSON.stringify(value)) + PIECE_OVERHEAD;
    if (this.#free < bytes) this.#next();
    this.#free -= bytes;
    add(this.#last());
  }

  #next(): void {
    this.deltas.push({});
    this.#free = this.#maxBytes;
  }

  #last(): MessageDelta {
    const last = this.deltas.at(-1);
    if (!last) throw new Error('there is no delta to add to');
    return last;
  }
}
