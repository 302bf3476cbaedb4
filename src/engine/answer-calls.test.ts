import { describe, expect, test } from 'vitest';
import { AT, turnStart, TURN_ID } from '../../test/support/random-turn.ts';
import type { SessionRow } from '../catalog/schema.ts';
import type { ToolCall } from '../core/records/calls.ts';
import { subjectNamed, type Caller } from '../core/subject.ts';
import { onReplacedOf, waitingAfter } from '../core/tool-records.ts';
import { TurnActions } from '../core/turn-actions.ts';
import type { Answer, TurnCommand } from '../core/turn-command.ts';
import { answerCalls } from './answer-calls.ts';
import type { Engine } from './engine.ts';
import { allowedCalls } from '../../test/support/tracked-calls.ts';

const start = turnStart({ pause: 'wait' });
const boss: Caller = { subject: subjectNamed('boss'), roles: ['user'] };
const lead: Caller = { subject: subjectNamed('lead'), roles: ['approver'] };

const allow = (toolCallId: string): Answer => ({
  type: 'user.tool_approval',
  threadId: 'main',
  toolCallId,
  approval: { status: 'allow' },
});

/** A call that these subjects decide. */
function callFor(id: string, subjects: string[]): ToolCall {
  const policy = { quorum: 1, onExpiry: 'deny' as const, approvers: { subjects, roles: [] } };
  const info = { type: 'mcp' as const, serverId: 's', serverName: 's', name: id };
  const route = { to: 'server' as const, effect: 'once' as const, approval: true, callHash: id, policy };
  return { id, name: id, arguments: '{}', info, route };
}

/** A message with these calls, which wait. */
function ask(actions: TurnActions, calls: ToolCall[]): void {
  const message = { kind: 'model.message', id: 'msg_0', at: AT, threadId: 'main' } as const;
  const texts = { content: '', refusal: '', reasoning: '', finishReason: 'tool_calls' } as const;
  actions.add({ ...message, ...texts, toolCalls: calls }, 's');
  actions.endTask([], Date.parse(AT));
}

/** The engine of a session with this turn, and the commands that the turn was sent. */
function engineOf(actions: TurnActions, sent: TurnCommand[] = []): Engine {
  const judge = (command: TurnCommand) => {
    sent.push(command);
    const { verdicts, repeated } = actions.endTask([command], Date.parse(AT));
    return { turn: { actions }, refusal: verdicts.get(command.id), repeated: repeated.get(command.id) ?? [] };
  };
  let judged: ReturnType<typeof judge> | undefined;
  const engine = {
    turnIndex: { confirmedLast: () => Promise.resolve({ id: TURN_ID }) },
    catalog: { turns: { get: () => Promise.resolve(undefined) } },
    blobs: {},
    commands: {
      commandTurn: (_: string, command: TurnCommand) => {
        judged = judge(command);
        return Promise.resolve(true);
      },
    },
    logs: {
      status: () => Promise.resolve({ ...start, open: true, pending: [] }),
      firstAndLast: () => Promise.resolve({ created: { input: [] } }),
      currentRun: () => Promise.resolve({ actions, done: false, start, threads: [] }),
      command: async (_: string, { send }: { send: () => Promise<boolean> }) => ((await send()) ? judged : undefined),
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what the answers to a running turn need
  return engine as unknown as Engine;
}

// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what determines rights
const session = { id: start.sessionId, subject_id: 'ann' } as SessionRow;

test.each<[string, Caller, string[]]>([
  ['a stranger to the session, those that it may decide', boss, ['b']],
  ['a reader of the session, all', lead, ['b', 'c']],
])('the calls that still wait after an answer are shown to %s', async (_, caller, waiting) => {
  const actions = new TurnActions(start);
  const sent: TurnCommand[] = [];
  const engine = engineOf(actions, sent);
  ask(actions, [callFor('a', ['boss', 'lead']), callFor('b', ['boss', 'lead']), callFor('c', ['chief'])]);
  const result = await answerCalls(engine, { session, caller, answers: [allow('a')] });
  expect(result).toEqual({ accepted: ['a'], waiting, repeated: [] });

  // The call of the first answer has run, and its message has been answered.
  ask(actions, [callFor('b', ['boss', 'lead']), callFor('c', ['chief'])]);
  const again = await answerCalls(engine, { session, caller, answers: [allow('a')] });
  expect(again).toEqual({ accepted: ['a'], waiting, repeated: ['a'] });
  expect(sent).toMatchObject([{ type: 'answer', askedUntil: Date.parse(AT) }]);
});

describe('a call that was allowed, and is asked about once more', () => {
  const policy = { quorum: 1, onExpiry: 'deny' as const, approvers: { subjects: ['boss'], roles: [] } };

  /** The turn that has recorded the answers to `ran` and `again`, and asks about `again` once more. */
  const turn = () => {
    const actions = new TurnActions(start);
    ask(
      actions,
      ['ran', 'again'].map((id) => callFor(id, ['boss'])),
    );
    const command = { ...boss, type: 'answer', id: 'req_0', mayDecide: true, mayRespond: true } as const;
    actions.endTask([{ ...command, answers: ['ran', 'again'].map(allow) }], Date.parse(AT));
    actions.ended({ threadId: 'main', toolCallId: 'ran' });
    const call = allowedCalls(actions)
      .map((call) => ({ ...call, threadId: 'main' }))
      .find(({ toolCallId }) => toolCallId === 'again');
    const onReplaced = call && onReplacedOf(call);
    const asked = call && waitingAfter({ ...call, ...(onReplaced && { onReplaced }) }, { isReplaced: true });
    if (asked) actions.ask(asked);
    actions.endTask([], Date.parse(AT) + 1);
    return actions;
  };
  const waiting = () => engineOf(turn());

  /** The same where the turn was started with the answers, and has ended with the question. */
  const ended = () => {
    const source = { turnId: TURN_ID, messageId: 'msg_0', stamp: 's', index: 1 };
    const again = { threadId: 'main', toolCallId: 'again', needs: 'approval', source, policy, isAskedAgain: true };
    const created = { input: ['ran', 'again'].map(allow), createdBy: boss.subject };
    const engine = waiting();
    Object.assign(engine, { keptAnswers: { add: () => Promise.reject(new Error('it counts')) } });
    Object.assign(engine.logs, {
      status: () => Promise.resolve({ ...start, open: false, pending: [again] }),
      firstAndLast: () => Promise.resolve({ created }),
    });
    return engine;
  };

  test.each([
    ['waits', waiting],
    ['has ended', ended],
  ])('still waits after a repetition of the first request, in a turn that %s', async (_, engine) => {
    const first = { session, caller: boss, answers: ['ran', 'again'].map(allow) };
    const repeated = { accepted: ['ran', 'again'], waiting: ['again'], repeated: ['ran', 'again'] };
    expect(await answerCalls(engine(), first)).toMatchObject(repeated);
    const alone = { session, caller: boss, answers: [allow('again')] };
    const withKey = await answerCalls(engine(), { ...alone, isRepetition: true });
    expect(withKey).toMatchObject({ accepted: ['again'], waiting: ['again'], repeated: ['again'] });
  });

  test('is answered by a request of its own', async () => {
    const alone = { session, caller: boss, answers: [allow('again')] };
    expect(await answerCalls(waiting(), alone)).toEqual({ accepted: ['again'], waiting: [], repeated: [] });
    await expect(answerCalls(ended(), alone)).rejects.toThrow('it counts');
  });
});

test('an answer that is repeated while the turn with it starts is found in that turn', async () => {
  const source = { turnId: TURN_ID, messageId: 'msg_0', stamp: 's', index: 0 };
  const policy = { quorum: 1, onExpiry: 'deny' as const, approvers: { subjects: ['boss'], roles: [] } };
  const pending = [{ threadId: 'main', toolCallId: 'a', needs: 'approval', source, policy }];
  const engine = engineOf(new TurnActions(start));
  let last = TURN_ID;
  const keptAnswers = {
    add: () => {
      last = 'turn_2';
      return Promise.resolve(false);
    },
  };
  Object.assign(engine, { keptAnswers });
  Object.assign(engine.turnIndex, { confirmedLast: () => Promise.resolve({ id: last }) });
  Object.assign(engine.logs, {
    status: (turnId: string) =>
      Promise.resolve({ ...start, turnId, open: false, pending: turnId === TURN_ID ? pending : [] }),
    firstAndLast: (turnId: string) =>
      Promise.resolve({ created: { input: turnId === 'turn_2' ? [allow('a')] : [], createdBy: boss.subject } }),
    currentRun: () => Promise.resolve({ actions: new TurnActions(start), done: {}, start, threads: [] }),
  });
  const result = await answerCalls(engine, { session, caller: boss, answers: [allow('a')] });
  expect(result).toEqual({ accepted: ['a'], waiting: [], repeated: ['a'], turnId: 'turn_2' });
});
