import { expect, test } from 'vitest';
import { continuation, TURN_ID, turnStart } from '../../test/support/random-turn.ts';
import type { HistoryEvent } from '../core/history.ts';
import type { TurnCommand } from '../core/turn-command.ts';
import { RunningTurns } from './running-turns.ts';

const AT = '2026-11-28T08:00:00.000Z';
const by = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };

/** The events of a command and of the workflow task that records it. */
const commanded = (id: string, command: TurnCommand = { type: 'pause', id, subject: by }): HistoryEvent[] => [
  { type: 'commanded', command },
  { type: 'taskStarted', at: AT },
  { type: 'taskCompleted' },
];

/** A turn of some runs, whose last one grows, and what was read of it. */
class FakeHistory {
  readonly runs = new Map<string, HistoryEvent[]>();
  readonly reads: string[] = [];

  constructor() {
    this.runs.set('run_1', [{ type: 'started', at: AT, start: turnStart(), runId: 'run_1' }]);
  }

  get events(): HistoryEvent[] {
    return [...this.runs.values()].at(-1) ?? [];
  }

  async *read() {
    this.reads.push(`${this.events.length} events`);
    yield { events: [...this.events], lastEventId: this.events.length };
  }

  readSince(_turnId: string, runId: string, after: number) {
    const events = (this.runs.get(runId) ?? []).slice(after);
    if (events.length > 0) this.reads.push(`${events.length} new`);
    return Promise.resolve({ events, lastEventId: after + events.length });
  }
}

/** A command that the turn records when it is sent. */
function sending(id: string, { events }: FakeHistory, command?: TurnCommand) {
  const send = () => {
    events.push(...commanded(id, command));
    return Promise.resolve(true);
  };
  return { id, send, signal: new AbortController().signal };
}

test('the part of a running turn that was read is not read again', async () => {
  const history = new FakeHistory();
  const turns = new RunningTurns(history);
  for (let i = 0; i < 100; i++) history.events.push(...commanded(`req_${i}`));
  const turn = await turns.state(TURN_ID);
  for (const id of ['req_a', 'req_b']) {
    expect(await turns.command(TURN_ID, sending(id, history))).toEqual({ turn, refusal: undefined, repeated: [] });
  }
  expect(history.reads).toEqual(['301 events', '3 new', '3 new']);
});

test('each of many commands that are recorded together gets its own verdict', async () => {
  const history = new FakeHistory();
  const turns = new RunningTurns(history);
  const ids = Array.from({ length: 300 }, (_, i) => `req_${i}`);
  const said = await Promise.all(ids.map((id) => turns.command(TURN_ID, sending(id, history))));
  expect(said.filter((one) => one?.repeated.length === 0)).toHaveLength(300);
});

test('a command that the turn refuses is sent again with another verdict; one that it never records has none', async () => {
  const history = new FakeHistory();
  const turns = new RunningTurns(history);
  const answer = { type: 'answer', subject: by, roles: [], mayDecide: true, mayRespond: true } as const;
  const refused = sending('req_1', history, { ...answer, id: 'req_1', answers: [] });
  expect(await turns.command(TURN_ID, refused)).toMatchObject({ refusal: { code: 'nothing_pending' } });
  expect(await turns.command(TURN_ID, sending('req_1', history))).toMatchObject({ refusal: undefined });
  expect(await turns.command(TURN_ID, { ...refused, send: () => Promise.resolve(false) })).toBeUndefined();
  history.events.push({ type: 'closed', at: AT, close: { how: 'timed_out' } });
  expect(await turns.command(TURN_ID, { ...refused, send: () => Promise.resolve(true) })).toBeUndefined();
});

test('equal commands at the same time, which have one id, get the same verdict', async () => {
  const history = new FakeHistory();
  const turns = new RunningTurns(history);
  const slow = sending('req_1', history);
  const held = Promise.withResolvers<void>();
  const [first, second] = [
    turns.command(TURN_ID, slow),
    turns.command(TURN_ID, { ...slow, send: () => held.promise.then(() => slow.send()) }),
  ];
  expect(await first).toMatchObject({ refusal: undefined });
  held.resolve();
  expect(await second).toMatchObject({ refusal: undefined });
});

test('readers at the same time feed each event once', async () => {
  const history = new FakeHistory();
  const turns = new RunningTurns(history);
  history.events.push(...commanded('req_1'));
  const [one, other] = await Promise.all([turns.state(TURN_ID), turns.state(TURN_ID)]);
  expect(one).toBe(other);
  expect(history.reads).toEqual(['4 events']);
});

test('a turn that continues as new is read on in its next run', async () => {
  const history = new FakeHistory();
  const turns = new RunningTurns(history);
  const turn = await turns.state(TURN_ID);
  const carry = continuation({ ...turn.open, previousRunId: 'run_1' });
  history.events.push({ type: 'continued', at: AT, runId: 'run_2' });
  history.runs.set('run_2', [{ type: 'started', at: AT, start: turnStart({ carry }), runId: 'run_2' }]);
  expect(await turns.command(TURN_ID, sending('req_1', history))).toMatchObject({ turn, refusal: undefined });
});

test('a turn that has ended, or could not be read, is read anew', async () => {
  const history = new FakeHistory();
  const turns = new RunningTurns(history);
  const turn = await turns.state(TURN_ID);
  history.events.push({ type: 'ended', scheduledEventId: 9, at: AT, end: { how: 'timed_out' } });
  history.events.push({ type: 'closed', at: AT, close: { how: 'timed_out' } });
  expect((await turns.state(TURN_ID)).done).toBe(true);
  expect(await turns.state(TURN_ID)).not.toBe(turn);
  history.events.push({ type: 'taskCompleted' });
  await expect(turns.state(TURN_ID)).rejects.toThrow("after the turn's end");
  history.events.pop();
  expect((await turns.state(TURN_ID)).done).toBe(true);
});
