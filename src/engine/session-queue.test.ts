import { expect, test } from 'vitest';
import type { Refusal } from '../catalog/slot-holders.ts';
import { SessionQueue } from './session-queue.ts';

/** A queue of a server with 10 slots, 4 of them for one subject, that refuses each session for this reason. */
function refusing(refusal: Refusal): Promise<unknown> {
  const services = {
    catalog: { sessionSlots: { create: () => Promise.resolve(refusal) } },
    config: { agentSessions: 10 },
    limits: () => ({ agentSessionsPerSubject: 4 }),
  } as unknown as ConstructorParameters<typeof SessionQueue>[0];
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
