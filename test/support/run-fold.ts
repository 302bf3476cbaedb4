import type { RunItem, RunStreamEvent } from '../../src/api/runs/wire/run.ts';

/** A part as the deltas of its partials add up; the arguments of a call are text. */
export type FoldedPart = Record<string, unknown>;

/**
 * What a client holds of a run's stream, as the contract of the run API says: items by their index, and the partials
 * since the last reset. Written independently of the server's own fold.
 */
export class RunFold {
  readonly items: RunItem[] = [];
  parts: FoldedPart[] = [];
  usage: unknown;
  /** The events since the last item or reset. */
  partials: (RunStreamEvent & { event: 'partial' })[] = [];
  end: RunStreamEvent | undefined;

  add(event: RunStreamEvent): void {
    if (event.event === 'partial') return this.#addPartial(event);
    if (event.event === 'item') {
      if (event.index !== this.items.length) throw new Error(`item ${event.index} after ${this.items.length} items`);
      this.items.push(event.item);
      this.#reset();
    } else this.end = event;
  }

  #addPartial(event: RunStreamEvent & { event: 'partial' }): void {
    if (event.item_index !== this.items.length) throw new Error(`a partial of item ${event.item_index}`);
    if (event.reset) this.#reset();
    if (event.delta || event.usage) this.partials.push(event);
    this.usage ??= event.usage;
    if (!event.delta) return;
    const { index, part } = event.delta;
    if (index > this.parts.length) throw new Error(`part ${index} after ${this.parts.length} parts`);
    const known = (this.parts[index] ??= { type: part.type });
    if (known.type !== part.type) throw new Error(`part ${index} was ${String(known.type)}, and becomes ${part.type}`);
    for (const [name, value] of Object.entries(part)) {
      if (name === 'call') continue;
      const before = known[name];
      const isAppended =
        (name === 'text' || name === 'args') && typeof before === 'string' && typeof value === 'string';
      known[name] = isAppended ? before + value : value;
    }
  }

  #reset(): void {
    this.parts = [];
    this.partials = [];
    this.usage = undefined;
  }
}
