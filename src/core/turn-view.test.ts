import { expect, test } from 'vitest';
import type { LogRecord } from './records/log.ts';
import { TurnView } from './turn-view.ts';

const AT = '2026-11-29T12:00:00.000Z';

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
  for (const record of records) view.add({ at: AT, ...record } as LogRecord);
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

test('a view tells what an open turn does, for whom it waits, and since when it is paused', () => {
  const paused = (reason: string) => ({ kind: 'turn.paused', reason });
  const [message = {}, approval = {}, response = {}] = ASKED;
  const [forPeople, forClient] = [viewOf([message, approval, paused('action')]), viewOf([message, response])];
  expect([viewOf([message]), forPeople, forClient].map(({ openState }) => openState)).toEqual([
    'running',
    'waiting_person',
    'asking',
  ]);
  const idsOf = (calls: TurnView['waiting']) => calls.map(({ call: { id } }) => id);
  const both = viewOf(ASKED);
  expect([idsOf(both.forPeople), idsOf(both.forClient)]).toEqual([['pay'], ['open']]);
  expect([...forPeople.pauses]).toEqual([['action', AT]]);
  const resumed = viewOf([message, paused('requested'), paused('budget'), { kind: 'turn.resumed', reason: 'budget' }]);
  expect([[...resumed.pauses.keys()], resumed.openState]).toEqual([['requested'], 'paused']);
});

test('a turn waits for the client until it has refreshed each toolkit', () => {
  const required = { kind: 'toolkit.refresh_required', toolkits: ['a', 'b'] };
  const refreshed = (toolkit: string) => ({ kind: 'toolkit.refreshed', toolkit, at: AT });
  const views = [[required], [required, refreshed('b')], [required, refreshed('b'), refreshed('a')]].map((records) =>
    viewOf(records),
  );
  expect(views.map(({ refresh, openState }) => [[...(refresh?.pending ?? [])], openState])).toEqual([
    [['a', 'b'], 'asking'],
    [['a'], 'asking'],
    [[], 'running'],
  ]);
  expect(viewOf([refreshed('b')]).toolkits.get('b')).toEqual(refreshed('b'));
});

test('a sign-in is required by the calls that wait for it, or by the thread whose model was not called', () => {
  const forCalls = { kind: 'mcp.auth_required', threadId: 'main', calls: [key('pay'), key('open')] };
  const forModel = { kind: 'mcp.auth_required', threadId: 'thr_1', calls: [] };
  const keysIn = (...records: object[]) => [...viewOf(records).signIns.keys()];
  expect(keysIn(forCalls, forModel)).toEqual(['main pay', 'main open', 'thr_1']);
  expect(keysIn(forCalls, { kind: 'tool.response', ...key('pay') })).toEqual(['main open']);
  expect(keysIn(forModel, { kind: 'model.message', threadId: 'thr_1', toolCalls: [] })).toEqual([]);
});

test('ids of operations name the turn or the run; the input of a turn is not kept', () => {
  const view = viewOf([{ kind: 'turn.created', turnId: 'turn_1', isRun: true, input: ['long'] }]);
  expect([view.operationIdOf(key('pay')), view.created]).toEqual([
    'run_1/pay',
    { kind: 'turn.created', at: AT, turnId: 'turn_1', isRun: true },
  ]);
  expect(viewOf([]).operationIdOf(key('pay'))).toBe('/pay');
});

test('what is said of a call that the view does not have is no question', () => {
  const [message = {}, approval = {}] = ASKED;
  const unknown = { kind: 'tool.decided', ...key('x'), decision: 'escalated', remaining: 1 };
  expect(waitingIn(viewOf([approval, unknown, message]))).toEqual([]);
  expect(waitingIn(viewOf([...ASKED, { kind: 'tool.response', ...key('pay') }]))).toEqual([['open', 1]]);
});
