import { mulberry32 } from '../../support/lossy-bus.ts';

/** Choices that a seed reproduces. */
export class Chance {
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = mulberry32(seed);
  }

  of(probability: number): boolean {
    return this.#random() < probability;
  }

  upTo(limit: number): number {
    return Math.floor(this.#random() * (limit + 1));
  }

  among<T>(first: T, ...others: T[]): T {
    return [first, ...others][this.upTo(others.length)] ?? first;
  }
}
