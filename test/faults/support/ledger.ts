import { appendFileSync } from 'node:fs';
import { z } from 'zod';
import type { RunningCall, TestTool } from '../../support/mcp-server.ts';

/** A tool call that came in, and what it did to the world. */
export interface Effect {
  operation: string;
  tool: string;
  arguments: Record<string, unknown>;
  /** False: a repetition that an idempotent tool knew by its operation id, or a tool that only reads. */
  tookEffect: boolean;
}

const behaviour = z.looseObject({
  /** Before the effect. */
  ms: z.number().optional(),
  /** Waits before the effect until `goOn` with the same word. */
  hold: z.string().optional(),
  /**
   * What happens behind the effect, the first time that the operation comes: `hang` never answers, `swallow` cuts the
   * connection where the result would have been sent.
   */
  first: z.enum(['hang', 'swallow']).optional(),
  /** Bytes of the result. */
  size: z.number().optional(),
});

/**
 * Every effect of every tool, by its operation id, counted in a process that no fault reaches, and in a file that can
 * be read afterwards.
 */
export class EffectLedger {
  readonly effects: Effect[] = [];
  readonly #file: string;
  readonly #seen = new Map<string, number>();
  readonly #held = new Map<string, PromiseWithResolvers<void>>();
  readonly #waiting: { operation: (id: string) => boolean; resolve: () => void }[] = [];

  constructor(file: string) {
    this.#file = file;
  }

  /** Calls that are held by this word may have their effects. */
  goOn(word: string): void {
    this.#mayGoOn(word).resolve();
  }

  /** Whether a call whose operation ends in `suffix` has come in. */
  hasStarted(suffix: string): boolean {
    return [...this.#seen.keys()].some((operation) => operation.endsWith(suffix));
  }

  /** The tools whose effects are counted: one for each of the ways in which Everturn treats them. */
  get tools(): TestTool[] {
    return [
      this.#tool('pay', 'once'),
      this.#tool('refund', 'once', { destructiveHint: true }),
      this.#tool('sync', 'once per operation', { idempotentHint: true }),
      this.#tool('look', 'none', { readOnlyHint: true }),
    ];
  }

  /** How often operations had an effect. */
  count(operation: string): number {
    return this.effects.filter((effect) => effect.operation === operation && effect.tookEffect).length;
  }

  /** Settles when a call that ends in `suffix` has come in. */
  async reached(suffix: string): Promise<void> {
    const operation = (id: string): boolean => id.endsWith(suffix);
    if (this.effects.some((effect) => operation(effect.operation))) return;
    await new Promise<void>((resolve) => void this.#waiting.push({ operation, resolve }));
  }

  #tool(name: string, effect: 'once' | 'once per operation' | 'none', annotations = {}): TestTool {
    return {
      name,
      annotations,
      handler: async (args, call) => {
        const operation = String(call.meta['io.everturn/operation-id']);
        const { ms = 0, hold, first, size = 0 } = behaviour.parse(args);
        const arrivals = (this.#seen.get(operation) ?? 0) + 1;
        this.#seen.set(operation, arrivals);
        if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
        if (hold !== undefined) await this.#mayGoOn(hold).promise;
        const tookEffect = effect === 'once' || (effect === 'once per operation' && this.count(operation) === 0);
        this.#note({ operation, tool: name, arguments: args, tookEffect });
        if (first && arrivals === 1) await misbehave(first, call);
        return `${name} has done ${operation}${'.'.repeat(size)}`;
      },
    };
  }

  #mayGoOn(word: string): PromiseWithResolvers<void> {
    const known = this.#held.get(word) ?? Promise.withResolvers<void>();
    this.#held.set(word, known);
    return known;
  }

  #note(effect: Effect): void {
    this.effects.push(effect);
    appendFileSync(this.#file, `${JSON.stringify(effect)}\n`);
    for (const { operation, resolve } of this.#waiting) if (operation(effect.operation)) resolve();
  }
}

async function misbehave(how: 'hang' | 'swallow', call: RunningCall): Promise<void> {
  if (how === 'swallow') call.cut();
  await new Promise((resolve) => call.signal.addEventListener('abort', resolve));
}
