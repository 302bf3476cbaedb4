import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { TurnRow } from '../catalog/schema.ts';
import type { HeadStart } from '../live/head-starts.ts';
import type { CreateTurnCommand } from '../../workflows/messages.ts';
import { giveHeadStart } from './give-head-start.ts';

const NOW = '2026-01-01T12:00:00.000Z';

const command: CreateTurnCommand = {
  turnId: 'turn_1',
  createdAt: NOW,
  createdBy: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
  input: [{ type: 'user.message', content: 'hi' }],
  title: 'hi',
  previous: { turn: 'last' },
  specHash: 'x',
  hasServers: false,
  limits: { iterations: 1, seconds: 1, toolSeconds: 1, toolHeartbeatSeconds: 1 },
};

const requestAt = (id: string, createdAt: string): TurnRow => ({
  id,
  session_id: 's',
  previous_turn_id: null,
  sequence: null,
  created_at: createdAt,
  archived: 0,
  archived_through: 0,
});

/** What is offered when the catalog answers like this, and after it has. */
async function offered(requests: Promise<TurnRow[]>, answered = new AbortController()): Promise<HeadStart[]> {
  const offers: HeadStart[] = [];
  const turns = { requests: () => requests, last: () => Promise.resolve(undefined) };
  const headStarts = { offer: (start: HeadStart) => void offers.push(start), withdraw: () => undefined };
  giveHeadStart({ catalog: { turns }, headStarts, log: pino({ level: 'silent' }) }, 's', command, answered.signal);
  await requests.catch(() => undefined);
  await new Promise((resolve) => void setImmediate(resolve));
  return offers;
}

test.each<[string, TurnRow[], number]>([
  ['its own', [requestAt('turn_1', NOW)], 1],
  ['another one on its way', [requestAt('turn_1', NOW), requestAt('turn_0', '2026-01-01T11:59:30.000Z')], 0],
  ['one that came to nothing long ago', [requestAt('turn_0', '2026-01-01T11:58:59.000Z')], 1],
])('with the request %s', async (_, requests, offers) => {
  expect(await offered(Promise.resolve(requests))).toHaveLength(offers);
});

test('a catalog that fails costs the head start and nothing else', async () => {
  expect(await offered(Promise.reject(new Error('gone')))).toEqual([]);
});

test('it is too late once the session has answered', async () => {
  const answered = new AbortController();
  const requests = Promise.withResolvers<TurnRow[]>();
  const offers = offered(requests.promise, answered);
  answered.abort();
  requests.resolve([]);
  expect(await offers).toEqual([]);
});
