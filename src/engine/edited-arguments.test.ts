import { expect, test } from 'vitest';
import { AT, TURN_ID } from '../../test/support/random-turn.ts';
import type { SessionRow } from '../catalog/schema.ts';
import type { SessionOwner } from '../core/history.ts';
import type { ToolCall } from '../core/records/calls.ts';
import type { InputItem } from '../core/records/input.ts';
import type { ModelMessage } from '../core/records/message.ts';
import type { PendingCall } from '../core/records/pending.ts';
import { checkEdits, editedArguments, type EditContext, type EditedCall } from './edited-arguments.ts';

const registered: SessionOwner = { subjectId: 'ann', draftRoles: null };
const draft: SessionOwner = { subjectId: 'ann', draftRoles: ['user'] };

/** What is checked if the arguments of a call of this thread are edited; the thread `main` is the root agent's. */
async function checked(
  owner: SessionOwner,
  { draftRoles, threads = [] }: { draftRoles?: string[]; threads?: EditContext['threads'] },
): Promise<EditedCall[]> {
  const { threadId } = threads[0] ?? { threadId: 'main' };
  const route = {
    to: 'server',
    effect: 'once',
    approval: true,
    callHash: 'h',
    ...(draftRoles && { draftRoles }),
  } as const;
  const info = { type: 'mcp', serverId: 's', serverName: 'bank', name: 'pay' } as const;
  const call: ToolCall = { id: 'p1', name: 'pay', arguments: '{"amount":1}', info, route };
  const texts = { content: '', refusal: '', reasoning: '', finishReason: 'tool_calls' } as const;
  const message: ModelMessage = { kind: 'model.message', id: 'msg_0', at: AT, threadId, ...texts, toolCalls: [call] };
  const source = { turnId: TURN_ID, messageId: 'msg_0', stamp: 's', index: 0 };
  const pending: PendingCall = { threadId, toolCallId: 'p1', needs: 'approval', source };
  const edited = editedArguments({ amount: 2 });
  const item: InputItem = {
    type: 'user.tool_approval',
    threadId,
    toolCallId: 'p1',
    approval: { status: 'allow', edited },
  };
  const calls: EditedCall[] = [];
  const engine = {
    logs: { message: () => Promise.resolve(message) },
    editCheck: (one: EditedCall) => {
      calls.push(one);
      return Promise.resolve(undefined);
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what an edit needs
  const sources = engine as unknown as Parameters<typeof checkEdits>[0];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the same
  const session = { id: 'ses_1' } as SessionRow;
  await checkEdits(sources, { session, owner, specHash: 'root', threads, pending: [pending] }, [item]);
  return calls;
}

const thread = { threadId: 'thread_1', specHash: 'sub' };

test.each<[string, SessionOwner, Parameters<typeof checked>[1], SessionOwner, string]>([
  ['a call of the turn, with those of its owner', registered, {}, registered, 'root'],
  ['a call that a client has written, as one of its drafts', registered, { draftRoles: ['user'] }, draft, 'root'],
  [
    'a call of a registered sub-agent in a draft, with those of that agent',
    draft,
    { threads: [{ ...thread, isRegistered: true }] },
    registered,
    'sub',
  ],
  [
    'a call of a sub-agent that a client has started, as one of its drafts',
    registered,
    { threads: [{ ...thread, draftRoles: ['user'] }] },
    draft,
    'sub',
  ],
])('edited arguments are checked with the rights with which the call runs: %s', async (_, owner, of, as, specHash) => {
  expect(await checked(owner, of)).toMatchObject([{ owner: as, specHash, call: { arguments: '{"amount":2}' } }]);
});
