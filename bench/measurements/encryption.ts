import { randomBytes } from 'node:crypto';
import { startPair } from '../all-in-one.ts';
import type { Setting } from '../setting.ts';
import { comparePair } from './pair.ts';

/** What encryption costs. */
export async function measureEncryption(setting: Setting): ReturnType<typeof comparePair<'plain', 'encrypted'>> {
  const keys = { EVERTURN_ENCRYPTION_KEYS: `bench:${randomBytes(32).toString('base64')}` };
  const pair = await startPair(setting, { plain: { env: {} }, encrypted: { env: keys } });
  return comparePair(setting, pair, { first: 'plain', second: 'encrypted', rounds: 3 });
}
