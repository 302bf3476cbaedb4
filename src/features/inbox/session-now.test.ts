import { pino } from 'pino';
import { expect, test } from 'vitest';
import { sessionNow } from './session-now.ts';

type Sources = Parameters<typeof sessionNow>[1];

const call = { threadId: 'main', toolCallId: 'c1', needs: 'approval' };
const signIn = { kind: 'mcp.auth_required', servers: [{ signInId: 'sgn_1' }] };
const requiredActions = [signIn, signIn, { kind: 'tool.approval_required', calls: [call] }];

/** A session whose last turn has ended in its log, and waits; `archivedAfter` reads its end is in the catalog. */
function lagging(archivedAfter: number) {
  let reads = 0;
  const rows = [{ kind: 'budget', turn_id: 'turn_1', tool_call_id: null }];
  const sources = {
    catalog: {
      sessions: { get: () => Promise.resolve({ state: 'waiting_person' }) },
      turns: {
        last: () => Promise.resolve({ id: 'turn_1', archived: 0 }),
        get: () => Promise.resolve({ archived: ++reads > archivedAfter ? 1 : 0 }),
      },
      actions: { pendingOf: () => Promise.resolve(new Map([['ses_1', rows]])) },
    },
    logs: {
      currentRun: () => Promise.resolve({ state: 'ended' }),
      firstAndLast: () => Promise.resolve({ done: { end: { status: 'done', output: null, requiredActions } } }),
    },
    log: pino({ level: 'silent' }),
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what is read
  const session = { id: 'ses_1', state: 'running' } as Parameters<typeof sessionNow>[0];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what is read
  return sessionNow(session, sources as unknown as Sources);
}

test('the catalog is awaited for what a turn that has just ended leaves waiting', async () => {
  const { session, waiting } = await lagging(1);
  expect(session.state).toBe('waiting_person');
  expect(waiting).toEqual([{ kind: 'budget', turn_id: 'turn_1', tool_call_id: null }]);
});

test('if the catalog lags for long, the log says what waits: each sign-in once', async () => {
  const { session, waiting } = await lagging(Infinity);
  expect(session.state).toBe('waiting_person');
  expect(waiting).toEqual([
    { kind: 'sign_in', turn_id: 'turn_1', tool_call_id: null },
    { kind: 'approval', turn_id: 'turn_1', tool_call_id: 'c1' },
  ]);
});
