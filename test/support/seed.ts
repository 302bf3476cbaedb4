/** The seed of random tests: `SEED`, by default 1, so that a run does not depend on chance. `SEED=random` draws one. */
export const SEED =
  process.env['SEED'] === 'random' ? Math.floor(Math.random() * 1e9) : Number(process.env['SEED'] ?? 1);
