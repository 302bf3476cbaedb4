import { expect, test } from 'vitest';
import { turnStart } from '../../test/support/random-turn.ts';
import type { InputItem } from './records/input.ts';
import type { PendingCall } from './records/pending.ts';
import type { OpenThread } from './records/threads.ts';
import {
  COMMAND_LIFETIME_MS,
  type CreateTurnCommand,
  type SeenTurn,
  type SessionTurnsState,
  type Tip,
} from './session.ts';
import { SessionTurns } from './session-turns.ts';
import { MAX_QUEUED } from './turn-queue.ts';

const SESSION = 'ses_1';
const NOW = Date.parse('2026-11-28T12:00:00.000Z');
const createdAt = new Date(NOW).toISOString();
const late = { createdAt: new Date(NOW - COMMAND_LIFETIME_MS - 1).toISOString() };

const source = { turnId: 'turn_3', messageId: 'm', stamp: 's', index: 0 };
const pending: PendingCall = { threadId: 'main', toolCallId: 'c', needs: 'response', source };
const answer: InputItem = { type: 'user.tool_response', threadId: 'main', toolCallId: 'c', content: 'x' };
const thread: OpenThread = {
  threadId: 'thread_1',
  title: 'T',
  parent: { threadId: 'main', toolCallId: 'd' },
  depth: 1,
  specHash: 'a1',
  hasServers: false,
  iterations: 1,
  steps: 1,
};

const tip: Tip = { turnId: 'turn_3', previousTurnId: 'turn_2', sequence: 3, pending: [] };
const queue = [
  { turnId: 'turn_5', number: 2 },
  { turnId: 'turn_6', number: 3 },
];

/** A session whose newest turn has ended, with nothing in its queue. */
function turns(given: Partial<SessionTurnsState> = {}): SessionTurns {
  const state = { tip: { ...tip }, open: false, closed: false, queue: [], newest: 'turn_6', ...given };
  return new SessionTurns(SESSION, structuredClone(state));
}

function command(given: Partial<CreateTurnCommand> = {}): CreateTurnCommand {
  const { createdBy, owner, input, title, specHash, hasServers, limits } = turnStart();
  const content = { createdBy, owner, input, title, specHash, hasServers, limits };
  return { turnId: 'turn_9', createdAt, ...content, previous: { turn: 'last' }, ...given };
}

const started = (session: SessionTurns, given: Partial<CreateTurnCommand> = {}, forked?: SeenTurn) => {
  const step = session.create(command(given), forked, NOW);
  if (!('start' in step)) throw new Error(JSON.stringify(step));
  return step;
};
const refusal = (session: SessionTurns, given: Partial<CreateTurnCommand> = {}, forked?: SeenTurn) => {
  const step = session.create(command(given), forked, NOW);
  return 'refusal' in step ? step.refusal.code : undefined;
};

test('a turn follows the last one, resumes what waits on it, and is the one that runs', () => {
  const session = turns({ tip: { ...tip, pending: [pending], threads: [thread] } });
  const { start, creation } = started(session, { input: [answer], sparesRunning: true, onRunning: 'reject' });
  expect(creation).toEqual({ turnId: 'turn_9', previousTurnId: 'turn_3', sequence: 4 });
  expect(start).toMatchObject({ ...creation, sessionId: SESSION, resumes: { pending: [pending], threads: [thread] } });
  expect(start).not.toHaveProperty('previous');
  expect(start).not.toHaveProperty('onRunning');
  expect(start).not.toHaveProperty('sparesRunning');
  expect(session.running).toBe('turn_9');
  expect(session.state).toMatchObject({ tip: { pending: [] }, newest: 'turn_9' });
});

test('a turn follows none, or one that it forks with what waits on that', () => {
  expect(started(turns(), { previous: { turn: 'none' } }).start).toEqual(
    expect.not.objectContaining({ resumes: expect.anything() }),
  );
  const fork = { previous: { turn: 'id', turnId: 'turn_1' } } as const;
  const forked = { ...tip, turnId: 'turn_1', sequence: 1, open: false, pending: [pending] };
  expect(started(turns(), { ...fork, input: [answer] }, forked).start).toMatchObject({
    previousTurnId: 'turn_1',
    sequence: 4,
    resumes: { pending: [pending] },
  });
  expect(refusal(turns(), fork, forked)).toBe('actions_pending');
  expect(refusal(turns(), fork, undefined)).toBe('turn_not_found');
  expect(refusal(turns(), fork, { ...forked, queued: { number: 1 } })).toBe('turn_not_found');
});

test('a turn that names the last one follows it with what waits on it, as the session knows that', () => {
  const session = turns({ tip: { ...tip, pending: [pending] } });
  expect(started(session, { previous: { turn: 'id', turnId: 'turn_3' }, input: [answer] }).start).toMatchObject({
    previousTurnId: 'turn_3',
    resumes: { pending: [pending] },
  });
});

test('only an earlier turn that a command forks is inspected, and only if the command may create a turn', () => {
  const fork = { previous: { turn: 'id', turnId: 'turn_1' } } as const;
  expect(turns().forkOf(command(fork), NOW)).toBe('turn_1');
  expect(turns().forkOf(command(), NOW)).toBe(undefined);
  expect(turns().forkOf(command({ previous: { turn: 'id', turnId: 'turn_3' } }), NOW)).toBe(undefined);
  expect(turns({ closed: true }).forkOf(command(fork), NOW)).toBe(undefined);
  expect(turns().forkOf(command({ ...fork, ...late }), NOW)).toBe(undefined);
  expect(turns({ open: true }).forkOf(command({ ...fork, onRunning: 'queue' }), NOW)).toBe(undefined);
});

test('a running turn is cancelled for the next one, whose input is checked again against how that has ended', () => {
  const session = turns({ open: true });
  expect(session.create(command(), undefined, NOW)).toEqual({ stops: 'turn_3' });
  session.ended({ pending: [pending], threads: [thread] });
  expect(refusal(session)).toBe('actions_pending');
  expect(started(session, { input: [answer] }).start).toMatchObject({
    resumes: { pending: [pending], threads: [thread] },
  });
});

test('a running turn is not cancelled by a caller that may not, or that would rather be rejected', () => {
  expect(refusal(turns({ open: true }), { sparesRunning: true })).toBe('forbidden');
  expect(refusal(turns({ open: true }), { onRunning: 'reject' })).toBe('turn_running');
});

test('a closed session takes no turn, neither to run nor into its queue', () => {
  for (const open of [true, false]) {
    for (const given of [{}, { onRunning: 'queue' as const }]) {
      expect(refusal(turns({ open, closed: true }), given)).toBe('session_closed');
      expect(refusal(turns({ open }), { ...given, ...late })).toBe('request_expired');
    }
  }
  expect(turns({ closed: true }).refuseAtOnce(command(), NOW)?.code).toBe('session_closed');
});

test('a command is carried out once: its turn may run, wait in the queue, or be found by its id or its age', () => {
  const session = turns({ queue });
  expect(session.known('turn_3')).toEqual({ turnId: 'turn_3', previousTurnId: 'turn_2', sequence: 3 });
  expect(session.known('turn_6')).toEqual({ turnId: 'turn_6', queued: { number: 3 } });
  expect(session.known('turn_9')).toBe(undefined);
  const mayExist = (given: Partial<CreateTurnCommand>) => session.mayExistAlready(command(given), NOW);
  expect(mayExist({ turnId: 'turn_5' })).toBe(true);
  expect(mayExist({ turnId: 'turn_6' })).toBe(true);
  expect(mayExist({ turnId: 'turn_7' })).toBe(false);
  expect(mayExist({ turnId: 'turn_7', ...late })).toBe(true);
  expect(mayExist({ turnId: 'turn_7', createdAt: new Date(NOW - COMMAND_LIFETIME_MS).toISOString() })).toBe(false);
  expect(turns({ newest: null }).mayExistAlready(command(), NOW)).toBe(false);
});

test('at once a command is rejected only for what cannot change before it is carried out', () => {
  const waiting = { tip: { ...tip, pending: [pending] } };
  const code = (state: Partial<SessionTurnsState>, given: Partial<CreateTurnCommand> = {}) =>
    turns(state).refuseAtOnce(command(given), NOW)?.code;
  expect(code(waiting)).toBe('actions_pending');
  expect(code(waiting, { previous: { turn: 'id', turnId: 'turn_3' } })).toBe('actions_pending');
  expect(code(waiting, { previous: { turn: 'id', turnId: 'turn_1' } })).toBe(undefined);
  expect(code(waiting, { previous: { turn: 'none' } })).toBe(undefined);
  expect(code(waiting, { input: [answer] })).toBe(undefined);
  // The turn that runs or waits may end with calls that the answers are for.
  expect(code({}, { input: [answer] })).toBe('call_not_pending');
  expect(code({ open: true }, { input: [answer] })).toBe(undefined);
  expect(code({ queue }, { input: [answer] })).toBe(undefined);
  // It may have been carried out.
  expect(code({ closed: true }, { turnId: 'turn_4' })).toBe(undefined);
});

test('whether the running turn has ended is found out for commands that do not cancel it', () => {
  const running = (given: Partial<CreateTurnCommand>) => turns({ open: true }).mustHaveEnded(command(given));
  expect(running({})).toBe(undefined);
  expect(running({ sparesRunning: true })).toBe('turn_3');
  expect(running({ onRunning: 'reject' })).toBe('turn_3');
  expect(running({ onRunning: 'queue' })).toBe('turn_3');
  expect(running({ input: [answer] })).toBe('turn_3');
  expect(running({ input: [{ type: 'user.message', content: 'x' }, answer] })).toBe('turn_3');
  expect(turns().mustHaveEnded(command({ input: [answer] }))).toBe(undefined);
});

test('a turn that cannot be started leaves the session as it was, unless another one runs already', () => {
  const session = turns({ tip: { ...tip, pending: [pending] } });
  const { undo } = started(session, { input: [answer] });
  undo();
  expect(session.running).toBe(undefined);
  expect(session.state.tip).toEqual({ ...tip, pending: [pending] });

  const other = turns();
  const first = started(other);
  other.adopt({ ...tip, turnId: 'turn_a', sequence: 7, open: true });
  first.undo();
  expect(other.running).toBe('turn_a');
});

test('a queued turn has no place in the order of turns, and rises above all that wait, also after some have begun', () => {
  const session = turns({ open: true, queue: queue.slice(1) });
  const { start, creation, undo } = started(session, { onRunning: 'queue', previous: { turn: 'none' } });
  expect(creation).toEqual({ turnId: 'turn_9', queued: { number: 4, isRoot: true } });
  expect(start).toMatchObject({ sequence: 0, previousTurnId: null, queued: { number: 4, position: 2 } });
  expect(session.state).toMatchObject({ newest: 'turn_9', tip, open: true });
  expect(session.known('turn_9')).toEqual(creation);
  undo();
  expect(session.state.queue).toEqual(queue.slice(1));
  expect(started(turns({ open: true }), { onRunning: 'queue' }).creation).toEqual({
    turnId: 'turn_9',
    queued: { number: 1 },
  });
});

test('a turn that the queue refuses neither waits in it nor runs', () => {
  const session = turns({ open: true, queue });
  expect(refusal(session, { onRunning: 'queue', previous: { turn: 'id', turnId: 'turn_1' } })).toBe('turn_running');
  expect(session.state).toMatchObject({ tip, queue, newest: 'turn_6' });
  const full = Array.from({ length: MAX_QUEUED }, (_, n) => ({ turnId: `turn_5${n}`, number: n }));
  expect(refusal(turns({ open: true, queue: full }), { onRunning: 'queue' })).toBe('queue_full');
});

test('the queue advances one turn at a time; each follows the one before it, a root none', () => {
  const session = turns({ queue: [queue[0]!, { ...queue[1]!, isRoot: true }] });
  expect(session.beginNext()).toMatchObject({ turnId: 'turn_5', begin: { sequence: 4, previousTurnId: 'turn_3' } });
  expect(session.running).toBe('turn_5');
  expect(session.beginNext()).toBe(undefined);
  session.ended({ pending: [] });
  expect(session.beginNext()).toMatchObject({ turnId: 'turn_6', begin: { sequence: 5, previousTurnId: null } });
  expect(session.isAnyQueued).toBe(false);
  expect(turns({ tip: null, queue }).beginNext()?.begin).toEqual({ sequence: 1, previousTurnId: null });
});

test('a turn that closed in the queue is passed over', () => {
  const session = turns({ queue });
  session.beginNext()?.undo();
  expect(session.beginNext()).toMatchObject({ turnId: 'turn_6', begin: { sequence: 4, previousTurnId: 'turn_3' } });
});

test('a turn that exists already is the newest one unless another has followed, or gets its place in the queue', () => {
  const session = turns({ queue });
  const found = { ...tip, turnId: 'turn_7', previousTurnId: 'turn_3', sequence: 4, pending: [pending], open: false };
  expect(session.adopt({ ...found, turnId: 'turn_2', sequence: 2 })).toMatchObject({ sequence: 2 });
  expect(session.adopt({ ...found, turnId: 'turn_4', sequence: 3 })).toMatchObject({ sequence: 3 });
  expect(session.state).toMatchObject({ tip, newest: 'turn_6' });
  expect(session.adopt(found)).toEqual({ turnId: 'turn_7', previousTurnId: 'turn_3', sequence: 4 });
  expect(session.state).toMatchObject({ tip: { turnId: 'turn_7', pending: [pending] }, open: false, newest: 'turn_7' });
  session.adopt({ ...found, sequence: 5, open: true });
  expect(session.running).toBe('turn_7');

  const queued = { ...found, turnId: 'turn_4', sequence: 0, pending: [], queued: { number: 1 } };
  expect(session.adopt({ ...queued, open: true })).toEqual({ turnId: 'turn_4', queued: { number: 1 } });
  session.adopt({ ...queued, turnId: 'turn_8' });
  expect(session.state.queue.map(({ turnId }) => turnId)).toEqual(['turn_4', 'turn_5', 'turn_6']);
  expect(session.state.newest).toBe('turn_8');
});

test('a cancel is for the turn that it names, or for the running and all queued turns that were requested before it', () => {
  const cancel = (given: { upTo?: string; turnId?: string; close?: boolean }) => {
    const session = turns({ open: true, queue });
    const cancelled = session.cancel({ upTo: 'turn_z', close: false, ...given });
    return { ...cancelled, left: session.state.queue.map(({ turnId }) => turnId), closed: session.state.closed };
  };
  expect(cancel({})).toEqual({ queued: ['turn_5', 'turn_6'], running: 'turn_3', left: [], closed: false });
  expect(cancel({ upTo: 'turn_5' })).toMatchObject({ queued: ['turn_5'], running: 'turn_3', left: ['turn_6'] });
  expect(cancel({ upTo: 'turn_2' })).toMatchObject({ queued: [], running: undefined, left: ['turn_5', 'turn_6'] });
  expect(cancel({ turnId: 'turn_3' })).toMatchObject({ queued: [], running: 'turn_3', left: ['turn_5', 'turn_6'] });
  expect(cancel({ turnId: 'turn_6' })).toMatchObject({ queued: ['turn_6'], running: undefined, left: ['turn_5'] });
  expect(cancel({ close: true }).closed).toBe(true);
  expect(turns().cancel({ upTo: 'turn_z', close: false })).toEqual({ queued: [], running: undefined });
});

test('what was read after a turn ended in the queue counts unless another turn runs already', () => {
  const before = { tip, open: false };
  const session = turns({ tip: { ...tip, turnId: 'turn_5', sequence: 4 }, open: true });
  expect(session.forget('turn_5', before)).toBe(true);
  expect(session.state).toMatchObject(before);
  started(session);
  expect(session.forget('turn_5', before)).toBe(false);
  expect(session.running).toBe('turn_9');
});

test('a session continues as new between turns, and during one only if its history is long', () => {
  const length = { continueAsNewSuggested: true, historyLength: 4_000, historySize: 4_000_000 };
  expect(turns().mayContinue(length)).toBe(true);
  expect(turns().mayContinue({ ...length, continueAsNewSuggested: false })).toBe(false);
  for (const state of [{ open: true }, { queue }]) {
    expect(turns(state).mayContinue(length)).toBe(false);
    expect(turns(state).mayContinue({ ...length, historyLength: 10_000 })).toBe(true);
    expect(turns(state).mayContinue({ ...length, historySize: 20 * 1024 * 1024 })).toBe(true);
  }
});

test.each([
  ['its turn has ended', {}, true],
  ['it is new', { tip: null }, true],
  ['it is closed', { closed: true }, true],
  ['a turn runs', { open: true }, false],
  ['a turn is queued', { queue }, false],
  ['a call waits', { tip: { ...tip, pending: [pending] } }, false],
  ['a sub-agent waits', { tip: { ...tip, threads: [thread] } }, false],
])('a session is at rest or not: %s', (_, state, expected) => {
  expect(turns(state).isAtRest).toBe(expected);
});
