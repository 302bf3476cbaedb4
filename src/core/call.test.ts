import { expect, test } from 'vitest';
import {
  behindWaiting,
  expiresAt,
  isCell,
  pendingLeft,
  readyOf,
  resumedCall,
  runsInSandbox,
  type Call,
} from './call.ts';
import { KERNEL } from './call-order.ts';
import type { PendingCall } from './records/pending.ts';

const AT = '2026-11-28T08:00:00.000Z';

/** The calls of a message to one server, in their order: `r` only reads. */
function callsOf(...calls: [name: string, state: Call['state']][]): Call[] {
  return calls.map(([toolCallId, state], index) => {
    const order = { server: 's', ...(toolCallId.startsWith('r') && { isReadOnly: true as const }) };
    const run = { effect: 'once' as const, callHash: toolCallId, order };
    const source = { turnId: 'turn_1', messageId: 'm', stamp: 's', index, run };
    return { threadId: 'main', toolCallId, state, source, votes: [] };
  });
}

const names = (calls: Call[]) => calls.map(({ toolCallId }) => toolCallId);

test.each<[Parameters<typeof callsOf>, string[]]>([
  [
    [
      ['r1', 'waiting'],
      ['w2', 'ready'],
      ['r3', 'ready'],
    ],
    ['w2', 'r3'],
  ],
  [
    [
      ['r1', 'waiting'],
      ['r2', 'ready'],
      ['w3', 'ready'],
    ],
    ['w3'],
  ],
  [
    [
      ['w1', 'running'],
      ['w2', 'ready'],
      ['w3', 'waiting'],
      ['r4', 'ready'],
    ],
    ['r4'],
  ],
  [
    [
      ['w1', 'settled'],
      ['w2', 'ready'],
    ],
    [],
  ],
])('behind a call that waits are those that it holds, and those that these hold: %j', (calls, behind) => {
  expect(names(behindWaiting(callsOf(...calls)))).toEqual(behind);
});

test.each<[Parameters<typeof callsOf>, string[]]>([
  [
    [
      ['w1', 'waiting'],
      ['w2', 'ready'],
    ],
    [],
  ],
  [
    [
      ['w1', 'running'],
      ['w2', 'ready'],
    ],
    [],
  ],
  [
    [
      ['r1', 'waiting'],
      ['r2', 'ready'],
    ],
    ['r2'],
  ],
  [
    [
      ['r1', 'running'],
      ['r2', 'ready'],
    ],
    ['r2'],
  ],
  [
    [
      ['w1', 'settled'],
      ['w2', 'ready'],
    ],
    ['w2'],
  ],
])('the calls that may begin are those that no earlier one holds: %j', (calls, ready) => {
  expect(names(readyOf(callsOf(...calls)))).toEqual(ready);
});

const EDITED = { arguments: '{"to":"bob"}', hash: 'e' };
const ELICITATION = { question: '{}', state: { blob: 'b' } };
const ANSWERED = { elicitation: ELICITATION, content: 'yes' };

/** A call to a server, as the log has it. */
const PLACED = {
  threadId: 'main',
  toolCallId: 'a',
  source: { turnId: 'turn_1', messageId: 'm', stamp: 's', index: 0, run: { effect: 'once', callHash: 'h' } },
} as const;

test('a call that is to run leaves the next turn its answer, and the arguments that it was approved with', () => {
  const ready = { ...PLACED, state: 'ready', votes: [] } satisfies Call;
  const answered = { ...ready, needs: 'response', elicitation: ELICITATION, answered: ANSWERED } as const;
  expect(pendingLeft(answered)).toMatchObject({ needs: 'order', answered: ANSWERED });
  expect(pendingLeft({ ...ready, needs: 'approval', edited: EDITED })).toMatchObject({
    needs: 'order',
    edited: EDITED,
  });
});

test('a resumed call is to run with what the input says of it', () => {
  const { source: _, ...key } = PLACED;
  const approval = { status: 'allow', edited: EDITED } as const;
  const approved = resumedCall(
    { ...PLACED, needs: 'approval' },
    { createdAt: AT, input: [{ type: 'user.tool_approval', ...key, approval }] },
  );
  expect(approved).toMatchObject({ state: 'ready', edited: EDITED });
  const asking: PendingCall = { ...PLACED, needs: 'response', elicitation: ELICITATION };
  const answer = { type: 'user.tool_response', ...key, content: 'yes' } as const;
  expect(resumedCall(asking, { createdAt: AT, input: [answer] })).toMatchObject({
    state: 'ready',
    hasBegun: true,
    answered: ANSWERED,
  });
});

test('a call that is denied, or has no server, does not run; one that the input does not resolve is an error', () => {
  const { source, ...key } = PLACED;
  const { run: _, ...position } = source;
  const asked: PendingCall = { ...PLACED, needs: 'approval' };
  const decided = (call: PendingCall, status: 'allow' | 'deny') => {
    const message = { type: 'user.message', content: 'hi' } as const;
    return resumedCall(call, {
      createdAt: AT,
      input: [message, { type: 'user.tool_approval', ...key, approval: { status } }],
    });
  };
  expect([decided(asked, 'allow')?.state, decided(asked, 'deny')]).toEqual(['ready', undefined]);
  expect(decided({ ...asked, source: position }, 'allow')).toBe(undefined);
  expect(() => resumedCall(asked, { createdAt: AT, input: [] })).toThrow('the input does not answer a');
});

test('calls wait behind others in the order of their message, not of their decisions', () => {
  const calls = callsOf(['w1', 'waiting'], ['r2', 'ready'], ['w3', 'ready'], ['r4', 'ready']);
  expect(names(behindWaiting(calls.toReversed()))).toEqual(['r2', 'w3', 'r4']);
});

test('a cell runs in the sandbox, once, on its kernel', () => {
  const source = { ...PLACED.source, run: { ...PLACED.source.run, order: { server: KERNEL } } };
  expect([isCell({ source }), isCell(PLACED), isCell({})]).toEqual([true, false, false]);
  expect(isCell({ source: { ...source, run: { ...source.run, effect: 'retry' } } })).toBe(false);
  const inSandbox = { source: { ...source, run: { ...source.run, inSandbox: true as const } } };
  expect([inSandbox, { source }, {}].map(runsInSandbox)).toEqual([true, false, false]);
});

test('an approval expires by its policy or with its code, the earlier of both', () => {
  const policy = { quorum: 1, onExpiry: 'deny' as const, expiresInSeconds: 2 };
  const action = {
    type: 'tool' as const,
    info: { type: 'system' as const, name: 'a' },
    arguments: '{}',
    expiresAt: 1500,
  };
  const all = [{ policy, action, askedAt: 1000 }, { policy, askedAt: 1000 }, { policy }, {}];
  expect(all.map(expiresAt)).toEqual([1500, 3000, undefined, undefined]);
});
