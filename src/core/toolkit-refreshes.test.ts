import { expect, test } from 'vitest';
import { continuation, turnStart } from '../../test/support/random-turn.ts';
import type { ToolCall, ToolRoute } from './records/calls.ts';
import type { NewRecord, UnsequencedRecord } from './records/log.ts';
import { TurnActions } from './turn-actions.ts';
import type { AnswerCommand, ToolkitRefresh } from './turn-command.ts';

const BEGIN = Date.parse('2026-11-23T08:00:00.000Z');
const at = new Date(BEGIN).toISOString();
const start = turnStart({ pause: 'wait' });
const client: ToolRoute = { to: 'client' };
const server: ToolRoute = { to: 'server', effect: 'once', approval: false, callHash: 'h' };

/** The records of a model call that asks for its toolkits. */
function answer(calls: Record<string, ToolRoute>, messageId = 'msg_1'): NewRecord[] {
  const toolCalls = Object.entries(calls).map(([id, route]): ToolCall => {
    return { id, name: id, arguments: '{}', info: { type: 'system', name: id }, route };
  });
  const texts = { content: '', refusal: '', reasoning: '', finishReason: 'tool_calls' as const };
  return [
    { kind: 'model.message', id: messageId, at, threadId: 'main', ...texts, toolCalls },
    { kind: 'toolkit.refresh_required', at, messageId, toolkits: ['a', 'b'] },
  ];
}

function after(records: readonly UnsequencedRecord[], of = start): TurnActions {
  const actions = new TurnActions(of);
  for (const record of records) actions.add(record, 's');
  return actions;
}

const refresh = (toolkit: string, hash = toolkit, messageId = 'msg_1'): ToolkitRefresh => {
  return { messageId, toolkit, tools: '[]', hash };
};

let commands = 0;
function command(refreshes: ToolkitRefresh[], more: Partial<AnswerCommand> = {}): AnswerCommand {
  const subject = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' } as const;
  const id = `req_${commands++}`;
  return { type: 'answer', id, subject, roles: [], mayDecide: true, mayRespond: true, answers: [], refreshes, ...more };
}

const kinds = (actions: TurnActions, ...given: AnswerCommand[]): string[] =>
  actions.endTask(given, BEGIN).records.map(({ kind }) => kind);

test('a turn is paused when all calls have results, until all of its toolkits are refreshed', () => {
  const actions = after(answer({ c: server }));
  expect([kinds(actions), actions.isModelAwaited('main')]).toEqual([[], true]);
  actions.ended({ threadId: 'main', toolCallId: 'c' });
  expect([kinds(actions), actions.pauses.reasons]).toEqual([['turn.paused'], ['action']]);
  expect(kinds(actions, command([refresh('a')]))).toEqual(['toolkit.refreshed']);
  const next = new TurnActions({ ...start, carry: continuation(actions.state) });
  expect([next.isModelAwaited('main'), next.isModelAwaited('thread')]).toEqual([true, false]);
  expect(kinds(next, command([refresh('b'), refresh('a')]))).toEqual(['toolkit.refreshed', 'turn.resumed']);
  expect(next.isModelAwaited('main')).toBe(false);
});

test('one pause is for calls of the client and for its toolkits', () => {
  const actions = after(answer({ c: client }));
  expect(kinds(actions)).toEqual(['tool.response_required', 'turn.paused']);
  const result = { type: 'user.tool_response', threadId: 'main', toolCallId: 'c', content: '' } as const;
  expect(kinds(actions, command([refresh('a'), refresh('b')], { answers: [result] }))).toEqual([
    'tool.response',
    'toolkit.refreshed',
    'toolkit.refreshed',
    'turn.resumed',
  ]);
});

test('a toolkit is refreshed once for each model call, by those who may answer for the client', () => {
  const actions = after(answer({}));
  expect(actions.refuse(command([refresh('a')], { mayRespond: false }))).toMatchObject({ code: 'not_an_approver' });
  kinds(actions, command([refresh('a')]));
  expect(actions.refuse(command([refresh('a')]))).toBeUndefined();
  for (const late of [refresh('a', 'other'), refresh('b', 'b', 'msg_0'), refresh('c')]) {
    expect(actions.refuse(command([refresh('b'), late]))).toMatchObject({
      code: 'already_decided',
      param: 'refreshes.1',
    });
  }
  for (const record of answer({}, 'msg_2')) actions.add(record, 's');
  // A refresh from before the last message is a repetition, also of a part.
  expect([actions.refuse(command([refresh('a')])), kinds(actions, command([refresh('a')]))]).toEqual([undefined, []]);
  expect(actions.refuse(command([refresh('b')]))).toMatchObject({ code: 'already_decided' });
  expect(kinds(actions, command([refresh('a', 'other', 'msg_2')]))).toEqual(['toolkit.refreshed']);
});

test('a turn that ends because a call has no result does not wait for its toolkits', () => {
  const failing = after(answer({ c: server }), { ...start, failsWithTools: true });
  const response = { kind: 'tool.response', at, threadId: 'main', toolCallId: 'c', content: '' } as const;
  failing.add({ ...response, outcome: 'failed', noResult: 'unreachable' }, 's');
  expect([kinds(failing), failing.isModelAwaited('main')]).toEqual([[], false]);
});

test('what other agents answer comes before the toolkits', () => {
  const actions = after(answer({ c: { to: 'session', sessionId: 'ses_2', callHash: 'h' } }));
  actions.delegate({ threadId: 'main', toolCallId: 'c' });
  expect([kinds(actions), actions.pauses.reasons]).toEqual([['turn.paused'], ['delegation']]);
});
