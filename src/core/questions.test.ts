import { expect, test } from 'vitest';
import type { Call } from './call.ts';
import { MAX_ASKING, Questions } from './questions.ts';
import type { PendingCall } from './records/pending.ts';
import type { RememberedDecision } from './remembered-decisions.ts';
import { newThread, type Threads } from './threads.ts';
import type { Answer, AnswerCommand } from './turn-command.ts';

const NOW = Date.parse('2026-11-28T08:00:00.000Z');
const ann = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' };
const bob = { subjectId: 'bob', subjectType: 'user', subjectSlug: 'bob' };
const QUESTION = { question: '{}', state: { blob: 'b' } };

const source = {
  turnId: 'turn_1',
  messageId: 'm',
  stamp: 's',
  index: 0,
  run: { effect: 'once' as const, callHash: 'h' },
};
const RUNNING: Omit<Call, 'toolCallId'> = { threadId: 'main', state: 'running', hasBegun: true, source, votes: [] };

const pending = (toolCallId: string, more: Partial<PendingCall> = {}): PendingCall => ({
  threadId: 'main',
  toolCallId,
  needs: 'response',
  source,
  ...more,
});
const approval = (id: string, more: Partial<PendingCall> = {}) => pending(id, { needs: 'approval', ...more });

interface Options {
  waits?: boolean;
  remembered?: [string, RememberedDecision][];
  /** The calls that the threads have. */
  calls?: Call[];
}

function begin({ waits = true, remembered, calls = [] }: Options = {}) {
  const threads: Threads = new Map([
    ['main', newThread({ calls })],
    ['thr_0', newThread()],
  ]);
  return new Questions({ threads, waits, authors: () => [], remembered });
}

const respond = (toolCallId: string, content = '1'): Answer => ({
  type: 'user.tool_response',
  threadId: 'main',
  toolCallId,
  content,
});
const decide = (toolCallId: string, status: 'allow' | 'deny', more: object = {}): Answer => ({
  type: 'user.tool_approval',
  threadId: 'main',
  toolCallId,
  approval: { status },
  ...more,
});
const command = (answers: Answer[], more: Partial<AnswerCommand> = {}): AnswerCommand => ({
  type: 'answer',
  id: 'req_1',
  subject: ann,
  roles: [],
  mayDecide: true,
  mayRespond: true,
  answers,
  ...more,
});

const idsOf = (calls: { toolCallId: string }[]) => calls.map(({ toolCallId }) => toolCallId);

test('a call waits once it was asked about', () => {
  const questions = begin();
  expect(questions.isAnyNew).toBe(false);
  questions.add(pending('c'));
  expect([questions.isAnyNew, questions.waiting]).toEqual([true, []]);
  expect(questions.ask(NOW)).toMatchObject([{ kind: 'tool.response_required', calls: [{ toolCallId: 'c' }] }]);
  expect([questions.isAnyNew, idsOf(questions.waiting)]).toEqual([false, ['c']]);
  expect(questions.ask(NOW)).toEqual([]);
});

test('calls that need no answer are not asked about', () => {
  const calls: Call[] = [{ ...RUNNING, toolCallId: 'c', state: 'new' }];
  expect(begin({ calls }).unanswered).toEqual([]);
});

test('in a turn that ends with its questions no call waits', () => {
  const questions = begin({ waits: false });
  questions.add(pending('c'));
  expect([questions.isAnyNew, idsOf(questions.unanswered)]).toEqual([false, ['c']]);
  expect([questions.ask(NOW), questions.giveUp(NOW)]).toEqual([[], []]);
});

test('a call of a thread that is over is not asked about', () => {
  const questions = begin();
  questions.add(pending('c', { threadId: 'thr_9' }));
  expect(questions.unanswered).toEqual([]);
});

test('beyond the limit, the question of a server is answered as cancelled, and a call without one stays as it is', () => {
  const calls: Call[] = ['asks', 'other'].map((toolCallId) => ({ ...RUNNING, toolCallId }));
  const questions = begin({ calls });
  for (let i = 0; i < MAX_ASKING; i++) questions.add(pending(`c${i}`));
  questions.add(pending('asks', { elicitation: QUESTION }));
  questions.add(pending('other'));
  questions.add(pending('unknown', { elicitation: QUESTION }));
  expect(questions.find({ threadId: 'main', toolCallId: 'asks' })).toMatchObject({
    state: 'ready',
    answered: { elicitation: QUESTION, content: '{"action":"cancel"}' },
  });
  expect(questions.find({ threadId: 'main', toolCallId: 'other' })).toEqual(calls[1]);
  expect(questions.unanswered).toHaveLength(MAX_ASKING);
});

test('approvals and unknown outcomes are not limited', () => {
  const questions = begin();
  for (let i = 0; i < MAX_ASKING; i++) questions.add(pending(`c${i}`));
  questions.add(approval('approval'));
  questions.add(pending('lost', { unknownOutcome: 'It is lost.' }));
  expect(idsOf(questions.unanswered).slice(MAX_ASKING)).toEqual(['approval', 'lost']);
});

test('a turn that ends with its questions has one event for each thread: its limit counts those that have begun', () => {
  const questions = begin({ waits: false });
  for (let i = 0; i < MAX_ASKING; i++) questions.add(pending(`c${i}`, { elicitation: QUESTION }));
  questions.add(pending('of another thread', { threadId: 'thr_0' }));
  questions.add(pending('one too many'));
  expect(idsOf(questions.unanswered).slice(MAX_ASKING)).toEqual(['of another thread']);
});

test('a call that waits has begun if it had; one whose approval is requested again has not, and keeps its rule', () => {
  const calls: Call[] = ['begun', 'again'].map((toolCallId) => ({ ...RUNNING, toolCallId, rule: 'r' }));
  const questions = begin({ calls });
  questions.add(approval('begun'));
  questions.add(approval('again', { isAskedAgain: true }));
  questions.add(approval('new'));
  questions.add(approval('new, again', { isAskedAgain: true }));
  const fields = { threadId: 'main', needs: 'approval', source, state: 'new', votes: [] };
  expect(questions.unanswered).toStrictEqual([
    { ...fields, toolCallId: 'begun', hasBegun: true },
    { ...fields, toolCallId: 'again', isAskedAgain: true, rule: 'r' },
    { ...fields, toolCallId: 'new' },
    { ...fields, toolCallId: 'new, again', isAskedAgain: true },
  ]);
});

test('a command answers calls that wait, all of them, if they were asked about before it was sent', () => {
  const questions = begin();
  questions.add(pending('c'));
  questions.ask(NOW);
  const answers = [respond('c'), respond('other')];
  expect(questions.areAwaited(command(answers.slice(0, 1)))).toBe(true);
  expect(questions.areAwaited(command(answers))).toBe(false);
  expect(questions.areAwaited(command(answers.slice(0, 1), { askedUntil: NOW - 1 }))).toBe(false);
  expect(questions.areAwaited(command(answers.slice(0, 1), { askedUntil: NOW }))).toBe(true);
});

test('a turn has calls of a command as long as one waits, or if one of those that it names was asked about', () => {
  const questions = begin({ calls: [{ ...RUNNING, toolCallId: 'runs' }] });
  expect(questions.hasCallsOf(command([respond('runs'), respond('other')]))).toBe(false);
  questions.add(pending('c'));
  questions.ask(NOW);
  expect(questions.hasCallsOf(command([respond('other')]))).toBe(true);
  questions.answer(respond('c'), ann, NOW);
  expect(questions.hasCallsOf(command([respond('other')]))).toBe(false);
  expect(questions.hasCallsOf(command([respond('other'), respond('c')]))).toBe(true);
});

test('answers to calls that do not wait are refused, to strangers also those to calls that they may not see', () => {
  const questions = begin({ calls: [{ ...RUNNING, toolCallId: 'runs' }] });
  questions.add(approval('c'));
  questions.ask(NOW);
  const refused = { code: 'call_not_pending' };
  expect(questions.refuse(command([respond('runs')]))).toMatchObject(refused);
  expect(questions.refuse(command([respond('other')]))).toMatchObject(refused);
  expect(questions.refuse(command([decide('c', 'allow')], { isStranger: true }))).toMatchObject(refused);
  expect(questions.refuse(command([decide('c', 'allow')]))).toBeUndefined();
});

test('a decision is remembered only for a call with a rule', () => {
  const calls: Call[] = [{ ...RUNNING, toolCallId: 'ruled', rule: 'r' }];
  const questions = begin({ calls });
  questions.add(approval('ruled', { isAskedAgain: true }));
  questions.add(approval('other'));
  questions.add(pending('response'));
  questions.ask(NOW);
  const remembers = { remembers: true };
  expect(questions.refuse(command([decide('ruled', 'allow', remembers)]))).toBeUndefined();
  expect(questions.refuse(command([decide('other', 'allow')]))).toBeUndefined();
  expect(questions.refuse(command([decide('other', 'allow', remembers)]))).toMatchObject({
    code: 'remember_not_allowed',
  });
  expect(questions.refuse(command([respond('response')]))).toBeUndefined();
});

test('an answer has an effect only on a call that waits, and the first time', () => {
  const calls: Call[] = [{ ...RUNNING, toolCallId: 'runs' }];
  const questions = begin({ calls });
  questions.add(pending('new'));
  for (const id of ['runs', 'new', 'other']) expect(questions.answer(respond(id), ann, NOW)).toEqual([]);
  questions.add(approval('c', { policy: { quorum: 2, onExpiry: 'deny' } }));
  questions.ask(NOW);
  expect(questions.answer(decide('c', 'allow'), ann, NOW)).toMatchObject([{ decision: 'allow', remaining: 1 }]);
  expect(questions.answer(decide('c', 'allow'), ann, NOW)).toEqual([]);
  expect(questions.answer(decide('c', 'allow'), bob, NOW)).toMatchObject([{ remaining: 0, by: bob }]);
});

test('the response of a client is the result of its call; that to the question of a server lets the call continue', () => {
  const questions = begin();
  questions.add(pending('client'));
  questions.add(pending('server', { elicitation: QUESTION }));
  questions.ask(NOW);
  expect(questions.answer(respond('client', 'yes'), ann, NOW)).toMatchObject([
    { kind: 'tool.response', outcome: 'succeeded', content: 'yes', by: ann },
  ]);
  expect(questions.answer(respond('server', 'yes'), ann, NOW)).toMatchObject([{ decision: 'respond', by: ann }]);
  expect(questions.find({ threadId: 'main', toolCallId: 'server' })).toMatchObject({
    state: 'ready',
    answered: { elicitation: QUESTION, content: 'yes' },
  });
});

test('the question of a server about a call whose approval is given is not taken as its answer', () => {
  const questions = begin();
  questions.add(approval('c', { elicitation: QUESTION }));
  questions.ask(NOW);
  expect(questions.answer(decide('c', 'allow'), ann, NOW)).toMatchObject([{ decision: 'allow' }]);
  expect(questions.find({ threadId: 'main', toolCallId: 'c' })).not.toHaveProperty('answered');
});

test.each<[string, Answer, RememberedDecision]>([
  ['an approval', decide('c', 'allow', { remembers: true }), { status: 'allow', by: ann }],
  ['a denial', decide('c', 'deny', { remembers: true }), { status: 'deny', by: ann }],
  [
    'a denial with a reason',
    decide('c', 'deny', { remembers: true, approval: { status: 'deny', reason: 'No.' } }),
    { status: 'deny', by: ann, reason: 'No.' },
  ],
])('%s that is remembered says so, and holds for the next call with its rule', (_, answer, decision) => {
  const questions = begin({ calls: [{ ...RUNNING, toolCallId: 'c', rule: 'r' }] });
  questions.add(approval('c', { isAskedAgain: true }));
  questions.ask(NOW);
  const [record] = questions.answer(answer, ann, NOW);
  expect(record).toMatchObject({ decision: decision.status, isRemembered: true, by: ann });
  expect(questions.remembered).toStrictEqual([['r', decision]]);
});

test('a decision that is not to be remembered, or has no rule, is not', () => {
  const questions = begin({ calls: [{ ...RUNNING, toolCallId: 'c', rule: 'r' }] });
  questions.add(approval('c', { isAskedAgain: true }));
  questions.add(approval('other'));
  questions.ask(NOW);
  const [record] = questions.answer(decide('c', 'allow'), ann, NOW);
  expect(record).not.toHaveProperty('isRemembered');
  questions.answer(decide('other', 'allow', { remembers: true }), ann, NOW);
  expect(questions.remembered).toEqual([]);
});

test('a denial has its reason in the decision and in the result, if it has one', () => {
  const questions = begin();
  for (const id of ['c', 'd']) questions.add(approval(id));
  questions.ask(NOW);
  const reasoned = decide('c', 'deny', { approval: { status: 'deny', reason: 'No.' } });
  expect(questions.answer(reasoned, ann, NOW)).toMatchObject([{ reason: 'No.' }, { content: 'No.' }]);
  const [record, response] = questions.answer(decide('d', 'deny'), ann, NOW);
  expect(record).not.toHaveProperty('reason');
  expect(response).toMatchObject({ outcome: 'denied', content: '' });
});

test('a new call is decided as before by its rule, but not if its approval is requested again', () => {
  const rules = { allowed: 'a', denied: 'd', again: 'a', without: undefined };
  const calls = Object.entries(rules).map(([id, rule]): Call => ({
    ...approval(id, id === 'again' ? { isAskedAgain: true } : {}),
    state: 'new',
    votes: [],
    ...(rule !== undefined && { rule }),
  }));
  const questions = begin({
    calls,
    remembered: [
      ['a', { status: 'allow', by: ann }],
      ['d', { status: 'deny', by: bob, reason: 'No.' }],
    ],
  });
  expect(questions.ask(NOW)).toMatchObject([
    { kind: 'tool.decided', toolCallId: 'allowed', decision: 'allow', by: ann, isRemembered: true, remaining: 0 },
    { kind: 'tool.decided', toolCallId: 'denied', decision: 'deny', by: bob, reason: 'No.' },
    { kind: 'tool.response', toolCallId: 'denied', outcome: 'denied' },
    { kind: 'tool.approval_required', calls: [{ toolCallId: 'again' }, { toolCallId: 'without' }] },
  ]);
  expect(idsOf(questions.waiting)).toEqual(['again', 'without']);
});

test('a call expires when its code stops waiting: without a policy too, and also if its policy allows it on expiry', () => {
  const info = { type: 'system' as const, name: 'x' };
  const questions = begin();
  const action = { type: 'tool' as const, info, arguments: '{}', expiresAt: NOW + 1 };
  questions.add(approval('without', { action }));
  questions.add(approval('with', { action, policy: { quorum: 1, onExpiry: 'allow' } }));
  questions.ask(NOW);
  expect(questions.advance(NOW)).toEqual([]);
  expect(questions.advance(NOW + 1)).toMatchObject([
    { toolCallId: 'without', decision: 'expired' },
    { toolCallId: 'without', outcome: 'expired' },
    { toolCallId: 'with', decision: 'expired' },
    { toolCallId: 'with', outcome: 'expired' },
  ]);
});

test('what waits when an answer is forced has a result, which says what is known', () => {
  const questions = begin({ calls: [{ ...RUNNING, toolCallId: 'lost' }] });
  questions.add(approval('c'));
  questions.ask(NOW);
  questions.add(pending('lost', { unknownOutcome: 'It is lost.' }));
  questions.add(approval('new'));
  expect(questions.giveUp(NOW)).toMatchObject([
    { toolCallId: 'lost', outcome: 'unknown_outcome', content: 'It is lost.' },
    { toolCallId: 'new', outcome: 'cancelled' },
    { toolCallId: 'c', outcome: 'cancelled' },
  ]);
  expect(questions.unanswered).toEqual([]);
});
