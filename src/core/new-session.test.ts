import { expect, test } from 'vitest';
import { createTurnCommand } from '../../test/support/create-turn-command.ts';
import type { InputItem } from './records/input.ts';
import type { CreateTurnCommand } from './session.ts';
import { SessionTurns } from './session-turns.ts';

const FIRST = createTurnCommand('turn_1');
const NOW = Date.parse(FIRST.createdAt);
const ANSWER: InputItem = { type: 'user.tool_response', threadId: 'main', toolCallId: 'c', content: 'x' };
const FORK: CreateTurnCommand = { ...FIRST, previous: { turn: 'id', turnId: 'turn_0' } };

const newSession = () => new SessionTurns('ses_1');
const refusal = (command: CreateTurnCommand) => {
  const step = newSession().create(command, undefined, NOW);
  return 'refusal' in step ? step.refusal.code : undefined;
};

test('a new session is at rest: it has no turn', () => {
  const session = newSession();
  expect(session.isAtRest).toBe(true);
  expect(session.running).toBeUndefined();
  expect(session.known('turn_1')).toBeUndefined();
});

test.each<CreateTurnCommand['previous']>([{ turn: 'last' }, { turn: 'none' }])(
  'the first turn of a session follows none (%j)',
  (previous) => {
    const session = newSession();
    const step = session.create({ ...FIRST, previous }, undefined, NOW);
    expect(step).toMatchObject({ creation: { turnId: 'turn_1', previousTurnId: null, sequence: 1 } });
    expect(step).not.toHaveProperty('start.resumes');
    expect(session.running).toBe('turn_1');
  },
);

test('an answer in the first turn of a session is rejected at once, and a message is not: nothing waits', () => {
  const session = newSession();
  expect(session.refuseAtOnce(FIRST, NOW)).toBeUndefined();
  expect(session.refuseAtOnce({ ...FIRST, input: [ANSWER] }, NOW)?.code).toBe('call_not_pending');
  expect(refusal({ ...FIRST, input: [ANSWER] })).toBe('call_not_pending');
});

test('a fork in a session without turns is rejected once its turn was looked for', () => {
  const session = newSession();
  expect(session.refuseAtOnce(FORK, NOW)).toBeUndefined();
  expect(session.forkOf(FORK, NOW)).toBe('turn_0');
  expect(refusal(FORK)).toBe('turn_not_found');
});

test('the first turn of a session leaves it without turns if it cannot be started, also if it is forgotten before', () => {
  for (const isForgotten of [false, true]) {
    const session = newSession();
    const step = session.create(FIRST, undefined, NOW);
    if (isForgotten) expect(session.forget('turn_1', { tip: null, open: false })).toBe(true);
    if ('undo' in step) step.undo();
    expect(session.state).toMatchObject({ tip: null, open: false });
    expect(session.isAtRest).toBe(true);
  }
});
