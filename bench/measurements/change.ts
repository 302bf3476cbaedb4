import { startPair } from '../all-in-one.ts';
import type { Setting } from '../setting.ts';
import { comparePair } from './pair.ts';

/**
 * What a change costs: this tree beside another one.
 * @param before a checkout with its own `node_modules`
 */
export async function measureChange(
  setting: Setting,
  before: string,
): ReturnType<typeof comparePair<'before', 'after'>> {
  const pair = await startPair(setting, { before: { env: {}, tree: before }, after: { env: {} } });
  return comparePair(setting, pair, { first: 'before', second: 'after', rounds: 10 });
}
