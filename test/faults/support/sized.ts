import { FIGURES_FILE } from './figures.ts';

/**
 * A number of turns, readers or inputs, for scenarios that check the same at any size.
 *
 * @param brief beside all other tests, where processor time is short
 * @param full in `npm run test:faults`, whose figures are published
 * @param long with `--long`; default: full
 */
export function sized({ brief, full, long = full }: { brief: number; full: number; long?: number }): number {
  if (process.env['LONG']) return long;
  return process.env[FIGURES_FILE] === undefined ? brief : full;
}
