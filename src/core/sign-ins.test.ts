import { expect, test } from 'vitest';
import { modelMessage } from '../../test/support/model-message.ts';
import { turnStart } from '../../test/support/random-turn.ts';
import { turnCreated } from './turn.ts';
import type { InputItem } from './records/input.ts';
import type { UnsequencedRecord } from './records/log.ts';
import { requestedSignIns } from './sign-ins.ts';

const at = '2026-11-21T08:00:00.000Z';
const message: InputItem[] = [{ type: 'user.message', content: 'hello' }];
const answer: InputItem[] = [{ type: 'user.tool_response', threadId: 'main', toolCallId: 'c', content: 'x' }];
const turn = (input: InputItem[]): UnsequencedRecord => turnCreated(turnStart({ input }));
const requested = (id: string): UnsequencedRecord => ({
  kind: 'mcp.auth_required',
  at,
  threadId: 'main',
  servers: [{ id: 'notes', name: 'notes', signInId: id, authUrl: 'https://x/' }],
  calls: [],
});
const connected: UnsequencedRecord = {
  kind: 'mcp.initialize',
  at,
  threadId: 'main',
  servers: [{ id: 'notes', name: 'notes', sessionId: null, transport: 'streamable-http' }],
};

test.each([
  ['before any request', [turn(message)], undefined],
  ['in a turn without input', [turn(message), requested('s1'), turn([])], { mayRepeat: true, isRecent: true }],
  ['in a turn with an answer', [turn(message), requested('s1'), turn(answer)], { mayRepeat: true, isRecent: true }],
  [
    'behind a message of a model',
    [turn(message), requested('s1'), modelMessage()],
    { mayRepeat: true, isRecent: true },
  ],
  ['in a turn with a message', [turn(message), requested('s1'), turn(message)], { mayRepeat: false, isRecent: true }],
  ['two turns later', [turn(message), requested('s1'), turn(message), turn([])], { mayRepeat: true, isRecent: false }],
  ['after the server was connected', [turn(message), requested('s1'), turn([]), connected, turn(message)], undefined],
])('a sign-in %s', (_, records, expected) => {
  expect(requestedSignIns(records).get('notes')).toEqual(expected && { id: 's1', ...expected });
});
