import { appendPart, lengthOf, partsAfter, type OutputPart } from '../core/output-parts.ts';
import { MAX_OUTPUT_PARTS, MAX_OUTPUT_CHARACTERS, type LiveOutput } from './bus.ts';

/** An output from its beginning on. */
export interface OutputSoFar extends Omit<LiveOutput, 'from'> {
  /** Characters. */
  length: number;
}

/** `gap`: a piece before it is missing, so that it has changed nothing. */
export type OutputChange = 'none' | 'grown' | 'gap';

/**
 * The outputs of calls that have not ended: the fold of pieces, which may be lost, duplicated or reordered. Each is always
 * a beginning of the output of its latest attempt.
 */
export class LiveOutputs {
  /** By the ids of their results. */
  readonly #outputs = new Map<string, OutputSoFar>();
  readonly #max: number;
  #characters = 0;
  #isClosed = false;

  /** @param max how many there may be; further ones are ignored */
  constructor(max = Infinity) {
    this.#max = max;
  }

  get all(): Iterable<OutputSoFar> {
    return this.#outputs.values();
  }

  /** The length of all outputs together. */
  get characters(): number {
    return this.#characters;
  }

  /** Each output as one piece, which supplies what its readers lack. */
  whole(): LiveOutput[] {
    // Copies: they grow.
    return [...this.#outputs.values()].map((one) => {
      const { length: _, parts, ...output } = one;
      return { ...output, from: 0, parts: parts.map((part) => ({ ...part })) };
    });
  }

  /** The outputs of a turn, as `whole` returns them. */
  on(turnId: string): LiveOutput[] {
    return this.has(turnId) ? this.whole().filter((output) => output.turnId === turnId) : [];
  }

  /** Whether there are outputs of a turn. */
  has(turnId: string): boolean {
    return this.#outputs.values().some((output) => output.turnId === turnId);
  }

  add({ from, ...piece }: LiveOutput): OutputChange {
    const known = this.#outputs.get(piece.id);
    if (this.#isClosed || (known && piece.attempt < known.attempt)) return 'none';
    const same = known?.attempt === piece.attempt ? known : undefined;
    const had = same?.length ?? 0;
    if (from > had) return 'gap';
    const news = partsAfter(piece.parts, had - from);
    const length = had + lengthOf(news);
    const parts: OutputPart[] = same?.parts ?? [];
    const isTooMuch = length > MAX_OUTPUT_CHARACTERS || parts.length + news.length > MAX_OUTPUT_PARTS;
    if (isTooMuch || length === had || (!known && this.#outputs.size >= this.#max)) return 'none';
    for (const part of news) appendPart(parts, part);
    this.#characters += length - (known?.length ?? 0);
    this.#outputs.set(piece.id, { ...piece, parts, length });
    return 'grown';
  }

  /** Drops the output of an attempt, or of all attempts; the output of a later one is kept. False if there is none. */
  delete(id: string, attempt = Infinity): boolean {
    const known = this.#outputs.get(id);
    if (!known || known.attempt > attempt) return false;
    this.#characters -= known.length;
    return this.#outputs.delete(id);
  }

  /** Drops all outputs, and ignores further ones: readers get the results from the log. */
  close(): void {
    this.#isClosed = true;
    this.#outputs.clear();
    this.#characters = 0;
  }
}
