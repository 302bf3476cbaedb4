import { expect, test } from 'vitest';
import type { LogRecord } from '../../core/records/log.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import type { AuthRequired } from '../../core/records/servers.ts';
import type { PauseReason } from '../../core/records/turn.ts';
import { TurnView } from '../../core/turn-view.ts';
import { isActionRequired, toRequiredAction } from './required-action.ts';
import { OTHER, OWNER } from '../../../test/support/readers.ts';

const at = '2026-11-23T08:00:00.000Z';
const source = { turnId: 'turn_1', messageId: 'msg_1', stamp: 's', index: 0 };

/** A sign-in to a server, named as the server; without a call the model of the thread waits for it. */
function requiring(server: string, threadId: string, toolCallId?: string): AuthRequired {
  const calls = toolCallId === undefined ? [] : [{ threadId, toolCallId, needs: 'sign_in' as const, source }];
  const servers = [{ id: server, name: server, signInId: server, authUrl: `https://x/${server}` }];
  return { kind: 'mcp.auth_required', id: 'evt', at, threadId, servers, calls };
}

const paused = (reason: PauseReason): LogRecord => ({ kind: 'turn.paused', id: 'evt', at, reason });
const answered: LogRecord = {
  kind: 'tool.response',
  id: 'evt',
  at,
  threadId: 'main',
  toolCallId: 'c1',
  outcome: 'succeeded',
  content: '',
};
const message: ModelMessage = {
  kind: 'model.message',
  id: 'msg_2',
  at,
  threadId: 'sub',
  content: 'x',
  refusal: '',
  reasoning: '',
  toolCalls: [],
  finishReason: 'stop',
};

test('a run that is paused shows the sign-ins that calls and threads wait for, each once, and the links to its owner', () => {
  const view = new TurnView();
  const feed = (...records: LogRecord[]) => records.forEach((record) => view.add(record));
  const signIns = (reader = OWNER) => toRequiredAction(view, { turn: 1, timeoutSeconds: 60, reader }).sign_ins;
  feed(requiring('a', 'main', 'c1'), requiring('a', 'main', 'c2'), requiring('b', 'main', 'c3'), requiring('a', 'sub'));
  expect(isActionRequired(view)).toBe(false);
  feed(paused('sign_in'));
  expect([isActionRequired(view), signIns()]).toEqual([
    true,
    [
      { server: 'a', auth_url: 'https://x/a', thread_ids: ['main', 'sub'], tool_call_ids: ['c1', 'c2'] },
      { server: 'b', auth_url: 'https://x/b', thread_ids: ['main'], tool_call_ids: ['c3'] },
    ],
  ]);
  expect(signIns(OTHER)).toEqual([
    { server: 'a', thread_ids: ['main', 'sub'], tool_call_ids: ['c1', 'c2'] },
    { server: 'b', thread_ids: ['main'], tool_call_ids: ['c3'] },
  ]);
  feed({ kind: 'turn.resumed', id: 'evt', at, reason: 'sign_in' }, answered, message);
  expect(isActionRequired(view)).toBe(false);
  feed(paused('action'));
  expect([
    isActionRequired(view),
    signIns()?.map(({ tool_call_ids: ids, thread_ids: threads }) => [ids, threads]),
  ]).toEqual([
    true,
    [
      [['c2'], ['main']],
      [['c3'], ['main']],
    ],
  ]);
});
