/** The seed of random tests: `SEED`, by default 1, so that a run does not depend on chance. `SEED=random` draws one. */
export const SEED =
  process.env['SEED'] === 'random' ? Math.floor(Math.random() * 1e9) : Number(process.env['SEED'] ?? 1);

/** How many random cases a test tries: a third of those that it tries with a seed of its own, as at night. */
export function cases(withSeed: number): number {
  return process.env['SEED'] === undefined ? Math.ceil(withSeed / 3) : withSeed;
}
