import { pino } from 'pino';
import { expect, test } from 'vitest';
import { TurnNotFound } from '../engine/turn-log-reader.ts';
import { indexTurns } from './index-turns.ts';

test('indexed and deleted turns are skipped; a turn that cannot be read is returned', async () => {
  const accepted: string[] = [];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the members that the test uses
  const options = {
    catalog: { turns: { get: (id: string) => Promise.resolve(id === 'indexed' ? {} : undefined) } },
    logs: {
      start: (turnId: string) => {
        if (turnId === 'gone') return Promise.reject(new TurnNotFound(turnId));
        if (turnId === 'unreadable') return Promise.reject(new Error('unreadable'));
        return Promise.resolve({ turnId });
      },
    },
    turnIndex: {
      accept: ({ turnId }: { turnId: string }) => {
        accepted.push(turnId);
        return Promise.resolve(true);
      },
    },
    log: pino({ level: 'silent' }),
  } as unknown as Parameters<typeof indexTurns>[0];
  const { signal } = new AbortController();
  expect(await indexTurns(options, ['indexed', 'unreadable', 'gone', 'missed'], signal)).toEqual(['unreadable']);
  expect(accepted).toEqual(['missed']);
});
