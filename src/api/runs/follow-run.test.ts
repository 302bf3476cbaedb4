import { pino } from 'pino';
import { expect, test } from 'vitest';
import { turnStart, TURN_ID } from '../../../test/support/random-turn.ts';
import type { SessionRow } from '../../catalog/schema.ts';
import { turnCreated } from '../../core/turn.ts';
import type { TurnLogReader } from '../../engine/turn-log-reader.ts';
import { InProcessBus } from '../../live/in-process-bus.ts';
import { TurnTailPool } from '../../live/turn-tail.ts';
import { followRun, type FollowServices } from './follow-run.ts';

test('the time to wait is a limit also while the history cannot be read', { timeout: 10_000 }, async () => {
  const logs = {
    firstUnarchived: () => new Promise(() => undefined),
    read: async function* () {
      yield [{ ordinal: 1, record: turnCreated(turnStart({})) }];
    },
  } as unknown as TurnLogReader;
  const catalog = { agents: { spec: () => Promise.resolve({ model: { name: 'x' } }) } };
  const tails = new TurnTailPool({ logs, bus: new InProcessBus(), log: pino({ level: 'silent' }) });
  const services = { catalog, logs, tails, blobs: {} } as unknown as FollowServices;
  const session = { id: 'ses_1', spec_hash: 'h' } as unknown as SessionRow;
  const { output } = await followRun(services, { session, turnId: TURN_ID }, { waitMs: 20 });
  expect(output.status).toBe('running');
});
