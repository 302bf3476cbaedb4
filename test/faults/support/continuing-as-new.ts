import path from 'node:path';
import { expect } from 'vitest';
import type { DynamicConfig } from '../../../src/temporal-server/dynamic-config.ts';
import { RECORD_INTO } from '../../support/histories.ts';
import { SEED } from '../../support/seed.ts';
import { Chance } from './chance.ts';

const SUGGESTS = 'limit.historyCount.suggestContinueAsNew';

/** The first step of a turn has about 8 events, and a turn of some steps 48. */
const [MIN_EVENTS, MAX_EVENTS] = [8, 48];

/** The number of worlds of each test file. */
const worlds = new Map<string, number>();

/**
 * Temporal suggests continue-as-new after a number of events that is drawn at each of its starts: so turns and sessions of
 * every scenario continue as new, each time at other places. A scenario that needs its own number gives it. None is
 * drawn for histories that are recorded: those of a release continue as its turns do.
 */
export function continuingAsNew(given: DynamicConfig = {}): () => DynamicConfig {
  if (process.env[RECORD_INTO] !== undefined) return () => given;
  const file = path.basename(expect.getState().testPath ?? '');
  const count = (worlds.get(file) ?? 0) + 1;
  worlds.set(file, count);
  const chance = new Chance(seedOf(`${file}/${count}`));
  return () => {
    const events = given[SUGGESTS] ?? MIN_EVENTS + chance.upTo(MAX_EVENTS - MIN_EVENTS);
    process.stdout.write(`${file}: histories continue as new after ${events} events (SEED=${SEED})\n`);
    // Otherwise runs as short as these would each be delayed by a second.
    return { 'history.continueAsNewMinInterval': '20ms', ...given, [SUGGESTS]: events };
  };
}

function seedOf(name: string): number {
  return Buffer.from(name).reduce((sum, byte) => (Math.imul(sum, 31) + byte) | 0, SEED);
}
