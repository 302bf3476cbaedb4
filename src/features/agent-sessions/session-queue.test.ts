import { expect, test } from 'vitest';
import type { RefusedPlacement } from './slot-holders.ts';
import { newId } from '../../engine/new-id.ts';
import { SessionQueue } from './session-queue.ts';
import { eventually } from '../../../test/support/eventually.ts';

type Services = ConstructorParameters<typeof SessionQueue>[0];

/** A queue of a server with these slots, 4 of them for one subject, that refuses each session for this reason. */
function refusing(refusal: RefusedPlacement, agentSessions = 10): Promise<unknown> {
  const services = {
    catalog: { sessionSlots: { create: () => Promise.resolve(refusal) } },
    config: { agentSessions },
    limits: () => ({ agentSessionsPerSubject: 4 }),
  } as unknown as Services;
  const session = {} as Parameters<SessionQueue['create']>[0];
  return new SessionQueue(services).create(session).catch((error: unknown) => error);
}

test.each([
  ['full', 'plan_limit', 'org', /^10 sessions work or wait, and no more may \(EVERTURN_AGENT_SESSIONS\)/],
  ['share_full', 'plan_limit', 'user', /^your sessions have the 4 slots .*\(EVERTURN_AGENT_SESSIONS_PER_SUBJECT\)/],
  ['queue_full', 'queue_full', 'org', /^1000 sessions wait for a slot/],
  ['queue_share_full', 'queue_full', 'user', /^400 of your sessions wait .*\(EVERTURN_AGENT_SESSIONS_PER_SUBJECT\)/],
] as const)(
  'a session that is refused as %s is told whose limit was reached',
  async (refusal, type, scope, message) => {
    expect(await refusing(refusal)).toMatchObject({
      code: 'too_many_sessions',
      message: expect.stringMatching(message),
      details: { type, scope },
    });
  },
);

test('the share of one subject is at most what the server has', async () => {
  expect(await refusing('share_full', 3)).toMatchObject({
    message: expect.stringMatching(/^your sessions have the 3 /),
  });
});

test('a wake at any moment of a run is followed by another look at the queue', async () => {
  for (let moment = 0; moment < 10; moment++) {
    let looks = 0;
    const admit = () => {
      looks += 1;
      return Promise.resolve([]);
    };
    const services = { catalog: { sessionSlots: { admit } }, config: { agentSessions: 10 }, limits: () => ({}) };
    const queue = new SessionQueue(services as unknown as Services);
    queue.wake();
    for (let i = 0; i < moment; i++) await Promise.resolve();
    const before = looks;
    queue.wake();
    await eventually(() => expect(looks).toBeGreaterThan(before));
    await queue.stop();
  }
});

/** What is cancelled of a session that was cancelled at this time while its first turn was being started. */
async function cancelledAt(at: (created: number) => number | null): Promise<unknown[]> {
  const created = Date.parse('2026-11-28T12:00:00.000Z');
  const turnId = newId('turn', created);
  const time = at(created);
  const cancelled: unknown[] = [];
  const services = {
    catalog: {
      sessionSlots: {
        firstTurn: () => Promise.resolve({ turnId, roles: '[]', input: [] }),
        started: () => Promise.resolve(false),
      },
      sessions: { get: () => Promise.resolve({ id: 'ses_1' }) },
      sessionRequests: {
        get: () => Promise.resolve({ cancelled_at: time === null ? null : new Date(time).toISOString() }),
      },
      turns: {
        get: () => Promise.resolve({ id: turnId, session_id: 'ses_1', sequence: 1 }),
        newestId: () => Promise.resolve(turnId),
      },
    },
    commands: { cancel: (_: string, command: { turnId?: string }) => Promise.resolve(cancelled.push(command.turnId)) },
  };
  await new SessionQueue(services as unknown as Services).start('ses_1');
  return cancelled.map((one) => one === turnId);
}

test('a session that is cancelled while its first turn is started ends that turn, and no turn of a later revival', async () => {
  expect(await cancelledAt((created) => created + 1)).toEqual([true]);
  expect(await cancelledAt((created) => created)).toEqual([true]);
  expect(await cancelledAt((created) => created - 1)).toEqual([]);
  expect(await cancelledAt(() => null)).toEqual([]);
});
