import { expect, test } from 'vitest';
import type { ToolRoute } from './records/calls.ts';
import type { UnsequencedRecord } from './records/log.ts';
import type { ToolOutcome } from './records/results.ts';
import { begunBy, CUT_OFF } from './stopped-work.ts';
import { transcript } from './transcript.ts';

const AT = '2026-11-21T08:00:00.000Z';
const base = { at: AT, refusal: '', reasoning: '' };

const SERVER: ToolRoute = { to: 'server', effect: 'once', approval: false, callHash: '' };

function calling(threadId: string, ids: string[], args = '{"id":1}', route = SERVER): UnsequencedRecord {
  const info = { type: 'mcp' as const, serverId: 's', serverName: 's', name: 'send' };
  const toolCalls = ids.map((id) => ({ id, name: 'send', arguments: args, info, route }));
  return {
    ...base,
    kind: 'model.message',
    id: `msg_${threadId}`,
    threadId,
    content: '',
    toolCalls,
    finishReason: 'tool_calls',
  };
}

const ended = (threadId: string, toolCallId: string, outcome: ToolOutcome): UnsequencedRecord => ({
  kind: 'tool.response',
  at: AT,
  threadId,
  toolCallId,
  outcome,
  content: '',
});

function started(threadId: string, parent: string): UnsequencedRecord {
  const thread = { threadId, title: 't', depth: 1, specHash: '', hasServers: false, iterations: 1 };
  return {
    kind: 'thread.created',
    at: AT,
    input: '',
    thread: { ...thread, parent: { threadId: parent, toolCallId: `call_${threadId}` } },
  };
}

test('the model of a parent is told what a stopped sub-agent and those below it had begun', () => {
  const records = [
    started('a', 'main'),
    started('b', 'a'),
    started('other', 'main'),
    calling('a', ['a1', 'a2', 'a3']),
    calling('b', ['b1']),
    calling('other', ['o1']),
    ended('a', 'a1', 'succeeded'),
    ended('a', 'a2', 'unknown_outcome'),
    ended('a', 'a3', 'cancelled'),
    ended('b', 'b1', 'failed'),
    ended('other', 'o1', 'succeeded'),
  ];
  expect(begunBy('a', records)?.split('\n')).toEqual([
    'It had called these tools:',
    '- send({"id":1}): done',
    '- send({"id":1}): outcome unknown, it may or may not have taken effect',
    '- send({"id":1}): failed',
  ]);
  expect(begunBy('a', records.slice(0, 6))).toBe(undefined);
  const byClient = [calling('a', ['c1'], '{}', { to: 'client' }), ended('a', 'c1', 'succeeded')];
  expect(begunBy('a', byClient)).toBe(undefined);
});

test('the list of begun calls is bounded', () => {
  const ids = Array.from({ length: 30 }, (_, n) => `c${n}`);
  const records = [calling('a', ids, 'x'.repeat(10_000)), ...ids.map((id) => ended('a', id, 'succeeded'))];
  const text = begunBy('a', records) ?? '';
  expect(text).toMatch(/\n- and 10 more$/);
  expect(text.length).toBeLessThan(6_000);
  expect(begunBy('a', records.slice(0, 21))?.split('\n')).toHaveLength(21);
});

test('the model is told that a message of its own was cut off, after the results of its calls', () => {
  for (const finishReason of ['cancelled', 'error'] as const) {
    const cut: UnsequencedRecord = {
      ...base,
      kind: 'model.message',
      id: 'msg_1',
      threadId: 'main',
      content: 'Once upon',
      toolCalls: [],
      finishReason,
    };
    expect(transcript([cut], 'main')).toMatchObject([
      { role: 'assistant' },
      { role: 'user', content: [{ text: CUT_OFF }] },
    ]);
    expect(transcript([{ ...cut, content: '' }], 'main')).toEqual([]);
    expect(transcript([{ ...cut, finishReason: 'stop' }], 'main')).toHaveLength(1);
  }
});
