import { expect, test } from 'vitest';
import { turnStart, TURN_ID } from '../../test/support/random-turn.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { CallModelInput, HistoryEvent } from '../log/history.ts';
import { turnCreated } from '../log/projection.ts';
import type { ModelMessage } from '../log/records.ts';
import type { TurnHistory } from '../temporal/history.ts';
import { Conversations } from './conversations.ts';
import type { TurnLogs } from './turn-logs.ts';

const AT = '2026-11-21T08:00:00.000Z';
const never = new AbortController().signal;

function input(upTo: number, step: number): CallModelInput {
  return {
    turnId: TURN_ID,
    sessionId: 'ses_1',
    owner: { subjectId: 'ann', draftRoles: null },
    threadId: 'main',
    runId: 'run_1',
    previousTurnId: null,
    sequence: 1,
    specHash: 'a1',
    messageId: `msg_${step}`,
    createdAt: AT,
    step,
    upTo,
    recent: [''],
  };
}

/** A history of model calls, three events each, behind its start. */
function history(messages: string[]): HistoryEvent[] {
  return messages.flatMap((content, i): HistoryEvent[] => {
    const message: ModelMessage = {
      kind: 'model.message',
      id: `msg_${i}`,
      at: AT,
      threadId: 'main',
      content,
      refusal: '',
      reasoning: '',
      toolCalls: [],
      finishReason: 'stop',
    };
    return [
      {
        type: 'scheduled',
        eventId: 10 + i,
        at: AT,
        activity: { name: 'callModel', input: { ...input(i + 1, i), messageId: message.id } },
      },
      { type: 'ended', scheduledEventId: 10 + i, at: AT, end: { how: 'completed', records: [message] } },
    ];
  });
}

/** Conversations over a history that grows by one message each time it is read, in a world that does as it is told. */
function world(get: BlobStore['get']) {
  const events: HistoryEvent[] = [{ type: 'started', at: AT, start: turnStart() }, ...history(['one', 'two', 'three'])];
  const readsAfter: number[] = [];
  const fake: Pick<TurnHistory, 'readSince'> = {
    readSince: async (_turnId, _runId, after) => {
      readsAfter.push(after);
      await new Promise((resolve) => setTimeout(resolve, 5));
      return { events: events.slice(after), lastEventId: events.length };
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- nothing else is asked of the blobs
  const blobs = { get } as BlobStore;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- no earlier runs, no earlier turns
  const conversations = new Conversations({ history: fake as TurnHistory, logs: {} as TurnLogs, blobs });
  return { conversations, events, readsAfter };
}

const said = (records: Awaited<ReturnType<Conversations['load']>>) =>
  records.map((record) => (record.kind === 'model.message' ? record.content : record.kind));

test('two attempts that ask at once are given the same, and neither spoils what the next call gets', async () => {
  const { conversations, events } = world(() => Promise.reject(new Error('no blobs')));
  const lastTwo = events.splice(-2);
  await conversations.load(input(3, 2), 'run', never);
  events.push(...lastTwo);
  const whole = ['turn.created', 'one', 'two', 'three'];
  const both = [conversations.load(input(4, 3), 'run', never), conversations.load(input(4, 3), 'run', never)];
  for (const records of await Promise.all(both)) expect(said(records)).toEqual(whole);
  events.push(...history(['', '', '', 'four']).slice(-2));
  expect(said(await conversations.load(input(5, 4), 'run', never))).toEqual([...whole, 'four']);
});

test('what fails in the middle of reading is read again from the beginning', async () => {
  let reads = 0;
  const { conversations, events, readsAfter } = world(() => {
    reads += 1;
    return reads === 1 ? Promise.reject(new Error('too many open files')) : Promise.resolve(Buffer.from('large'));
  });
  const lastTwo = events.slice(-2);
  const last = events.at(-1);
  if (last?.type !== 'ended' || last.end.how !== 'completed') throw new Error('no message');
  Object.assign(last.end.records[0] ?? {}, { content: { $blob: 'f'.repeat(64) } });
  // What is known by then must not be half of the new and half of the old.
  events.splice(-2);
  await conversations.load(input(3, 2), 'run', never);
  events.push(...lastTwo);
  await expect(conversations.load(input(4, 3), 'run', never)).rejects.toThrow('too many open files');
  expect(said(await conversations.load(input(4, 3), 'run', never))).toEqual(['turn.created', 'one', 'two', 'large']);
  expect(readsAfter).toEqual([0, 5, 0]);
});

test('the turn before one that begins is known from what the API has at hand: here are no logs to look into', async () => {
  const { conversations } = world(() => Promise.reject(new Error('here are no blobs')));
  const before = turnCreated(turnStart());
  const start = { ...turnStart({ turnId: 'turn_2', previousTurnId: TURN_ID }), sequence: 2, after: TURN_ID };
  const records = await conversations.beginning({ ...start, afterLog: [{ ordinal: 1, record: before }] }, never);
  expect(records).toEqual([before, turnCreated(start)]);
});
