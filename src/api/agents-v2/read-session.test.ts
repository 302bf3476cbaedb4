import { expect, test } from 'vitest';
import { exampleSession } from './examples.ts';
import { forEveryone } from './read-session.ts';

test('readers without a key see the public fields of a session, and no others', () => {
  const { request } = exampleSession;
  const secret = { note: 'secret', tenant: 'secret' };
  const session = {
    ...exampleSession,
    ...secret,
    request: { ...request, ...secret, timezone: 'Europe/Paris', agent: { ...request.agent, instructions: 'secret' } },
  };
  expect(forEveryone(session)).toEqual({ ...exampleSession, agent_revision: null });
});
