import { expect, test } from 'vitest';
import type { LogRecord } from './records/log.ts';
import { TurnView } from './turn-view.ts';

const key = (toolCallId: string) => ({ threadId: 'main', toolCallId });

/** The records of a message that calls a server and the client, and asks about both. */
const ASKED = [
  {
    kind: 'model.message',
    threadId: 'main',
    toolCalls: [
      { id: 'pay', route: { to: 'server' } },
      { id: 'open', route: { to: 'client' } },
    ],
  },
  {
    kind: 'tool.approval_required',
    calls: [{ ...key('pay'), needs: 'approval', policy: { quorum: 2 } }],
  },
  { kind: 'tool.response_required', calls: [{ ...key('open'), needs: 'response' }] },
];

function viewOf(records: object[], leftCalls?: TurnView['leftCalls']): TurnView {
  const view = new TurnView(leftCalls);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what is read
  for (const record of records) view.add({ at: '2026-11-29T12:00:00.000Z', ...record } as LogRecord);
  return view;
}

const done = (end: object) => ({ kind: 'turn.done', end });
const waitingIn = ({ waiting }: TurnView) => waiting.map(({ call: { id }, remaining }) => [id, remaining]);

test('a call waits until all have agreed who must, and a question to a call that has begun is no request for it', () => {
  const vote = { kind: 'tool.decided', ...key('pay'), decision: 'allow' };
  expect(waitingIn(viewOf(ASKED))).toEqual([
    ['pay', 2],
    ['open', 1],
  ]);
  const voted = viewOf([...ASKED, { ...vote, remaining: 1 }, { ...vote, decision: 'escalated', remaining: 1 }]);
  expect(waitingIn(voted)).toEqual([
    ['pay', 1],
    ['open', 1],
  ]);
  const asking = { kind: 'tool.response_required', calls: [{ ...key('pay'), needs: 'response', elicitation: {} }] };
  const [message = {}] = ASKED;
  expect(waitingIn(viewOf([...ASKED, { ...vote, remaining: 0 }]))).toEqual([['open', 1]]);
  expect([viewOf([message, asking]).wasAsked(key('pay')), viewOf(ASKED).wasAsked(key('pay'))]).toEqual([false, true]);
  expect(viewOf([message, asking]).forPeople.map(({ call: { id } }) => id)).toEqual(['pay']);
});

test('a turn that waits at its end leaves its calls, of which the next one runs those of servers', () => {
  const ended = viewOf([...ASKED, done({ status: 'done', requiredActions: [{}] })]);
  expect([waitingIn(ended).length, [...ended.leftCalls.keys()]]).toEqual([2, ['main pay', 'main open']]);
  const answer = { kind: 'tool.response', content: '' };
  const next = new TurnView(ended.leftCalls);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what is read
  const ends = ['pay', 'open', 'pay'].map((id) => next.add({ ...answer, ...key(id) } as LogRecord)?.id);
  expect(ends).toEqual(['pay', undefined, undefined]);
  const failed = viewOf([...ASKED, { kind: 'turn.paused', reason: 'action' }, done({ status: 'error' })]);
  expect([waitingIn(failed), failed.leftCalls.size, failed.pauses.size]).toEqual([[], 0, 0]);
});
