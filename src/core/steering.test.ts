import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { AT, continuation, TURN_ID, turnStart } from '../../test/support/random-turn.ts';
import type { CallModelInput, HistoryEvent } from './history.ts';
import { firstCallOf, Turn } from './turn.ts';
import type { LogRecord, UnsequencedRecord } from './records/log.ts';
import type { ModelMessage } from './records/message.ts';
import { ROOT_THREAD } from './records/threads.ts';
import { MAX_UNREAD, type SteerCommand } from './steering.ts';
import { transcript } from './transcript.ts';
import { TurnActions } from './turn-actions.ts';

const NOW = Date.parse(AT);
const ann = { subjectId: 'ann', subjectType: 'user' as const, subjectSlug: 'ann' };

function steer(id: string, ...messages: string[]): SteerCommand {
  return { type: 'steer', id, subject: ann, sessionId: 'ses_1', messages };
}

function messageOf(id: string, toolCalls: ModelMessage['toolCalls'] = []): ModelMessage {
  const texts = { content: id, refusal: '', reasoning: '' };
  return { kind: 'model.message', id, at: AT, threadId: ROOT_THREAD, ...texts, toolCalls, finishReason: 'stop' };
}

const contents = (records: UnsequencedRecord[]) =>
  records.flatMap((one) => (one.kind === 'user.steered' ? [one.content] : []));

test('messages that arrive during a model call are recorded after its message, and are unread until the next call', () => {
  const actions = new TurnActions(turnStart());
  const { steering } = actions;
  steering.modelCalled();
  expect(contents(actions.endTask([steer('c1', 'a', 'b')], NOW).records)).toEqual([]);
  expect([steering.mustRecord, steering.hasUnread]).toEqual([false, false]);
  steering.modelEnded();
  expect(actions.isUnsettled(NOW)).toBe(true);
  expect(contents(actions.endTask([steer('c2', 'c')], NOW).records)).toEqual(['a', 'b', 'c']);
  expect([steering.mustRecord, steering.hasUnread]).toEqual([false, true]);
  steering.modelCalled();
  expect(steering.hasUnread).toBe(false);
});

test('a pause during a model call stops the turn at once, and is recorded after the message of the call', () => {
  const actions = new TurnActions(turnStart());
  actions.steering.modelCalled();
  const given = (['pause', 'resume', 'pause'] as const).map((type, i) => ({ type, id: `req_${i}`, subject: ann }));
  expect(actions.endTask(given, NOW).records).toEqual([]);
  expect([actions.isHeld, actions.isPaused]).toEqual([true, true]);
  actions.steering.modelEnded();
  const kinds = actions.endTask([], NOW).records.map(({ kind }) => kind);
  expect(kinds).toEqual(['turn.paused', 'turn.resumed', 'turn.paused']);
});

test('messages that wait for the end of a model call count towards those that may be unread', () => {
  const { steering } = new TurnActions(turnStart());
  const messages = (count: number) => Array.from({ length: count }, (_, n) => `m${n}`);
  steering.modelCalled();
  steering.accept(steer('c1', ...messages(MAX_UNREAD - 1)), AT);
  expect(steering.hasRoomFor(steer('c2', 'a', 'b'))).toBe(false);
  expect(steering.hasRoomFor(steer('c2', 'a'))).toBe(true);
  steering.modelEnded();
  steering.record();
  expect(steering.hasRoomFor(steer('c2', 'a', 'b'))).toBe(false);
  steering.modelCalled();
  expect(steering.hasRoomFor(steer('c2', ...messages(MAX_UNREAD)))).toBe(true);
});

test('a repeated command is accepted once, also by the next run', () => {
  const actions = new TurnActions(turnStart());
  const command = steer('c1', 'a');
  expect(contents(actions.endTask([command, command], NOW).records)).toEqual(['a']);
  const next = new TurnActions(turnStart({ carry: continuation(actions.state) }));
  expect(next.steering.hasUnread).toBe(true);
  const { records, verdicts } = next.endTask([command], NOW);
  expect([records, verdicts.get('c1')]).toEqual([[], undefined]);
});

test('a turn accepts a bounded number of messages that it has not read', () => {
  const actions = new TurnActions(turnStart());
  const many = Array.from({ length: MAX_UNREAD }, (_, i) => `message ${i}`);
  expect(actions.refuse(steer('c0', ...many, 'one more'))).toMatchObject({ code: 'too_many_messages' });
  expect(actions.endTask([steer('c1', ...many)], NOW).records.length).toBe(MAX_UNREAD);
  expect(actions.endTask([steer('c2', 'b')], NOW).verdicts.get('c2')).toMatchObject({ code: 'too_many_messages' });
  expect(actions.refuse(steer('c1', ...many))).toBeUndefined();
  actions.steering.modelCalled();
  expect(actions.refuse(steer('c2', 'b'))).toBeUndefined();
});

test('a turn that was cancelled accepts what came before, and nothing later', () => {
  const actions = new TurnActions(turnStart());
  const { records, verdicts } = actions.endTask([steer('c1', 'a'), { type: 'cancelled' }, steer('c2', 'b')], NOW);
  expect(contents(records)).toEqual(['a']);
  expect([verdicts.get('c1'), verdicts.get('c2')]).toMatchObject([undefined, { code: 'nothing_running' }]);
});

const call: ModelMessage['toolCalls'][number] = {
  id: 'call_1',
  name: 'look',
  arguments: '{}',
  info: { type: 'mcp', serverId: 's', serverName: 's', name: 'look' },
  route: { to: 'server', effect: 'retry', approval: false, callHash: 'h' },
};

/** The events of a turn's history, with messages at any moment. */
const step = fc.record({
  duringModel: fc.boolean(),
  hasTool: fc.boolean(),
  duringTool: fc.boolean(),
  inSameTask: fc.boolean(),
  end: fc.constantFrom('completed', 'completed', 'failed'),
});

test('whenever messages arrive, the log has each once, and never between tool calls and their results', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 1, maxLength: 4 }), fc.boolean(), (steps, isTerminated) => {
      const start = turnStart();
      const projection = new Turn();
      const log: LogRecord[] = [];
      const feed = (event: HistoryEvent) => log.push(...projection.feed(event).map(({ record }) => record));
      const sent: string[] = [];
      const send = () => {
        sent.push(`steer ${sent.length}`);
        feed({ type: 'commanded', command: steer(`c${sent.length}`, `steer ${sent.length - 1}`) });
      };
      const task = () => {
        feed({ type: 'taskStarted', at: AT });
        feed({ type: 'taskCompleted' });
      };
      let eventId = 10;
      feed({ type: 'started', at: AT, start });
      for (const [i, { duringModel, hasTool, duringTool, inSameTask, end }] of steps.entries()) {
        const plan = i === 0 ? firstCallOf(start) : { ...firstCallOf(start), messageId: `msg_${i}`, upTo: log.length };
        const input: CallModelInput = { ...start, ...plan, step: i + 1, recent: [], runId: 'r', deadline: 0 };
        const calling = eventId++;
        feed({ type: 'scheduled', eventId: calling, at: AT, activity: { name: 'callModel', input } });
        if (duringModel) {
          const known = log.length;
          send();
          if (!inSameTask) task();
          expect(log.length).toBe(known);
        }
        const message = messageOf(plan.messageId, hasTool ? [{ ...call, id: `call_${i}` }] : []);
        const result = { how: 'completed' as const, records: [message], stamp: `s${i}` };
        feed({
          type: 'ended',
          scheduledEventId: calling,
          at: AT,
          end: end === 'completed' ? result : { how: 'timed_out' },
        });
        task();
        if (end !== 'completed' || !hasTool) continue;
        if (duringTool) {
          send();
          task();
        }
        const response = { kind: 'tool.response' as const, at: AT, threadId: ROOT_THREAD, toolCallId: `call_${i}` };
        const records = [{ ...response, outcome: 'succeeded' as const, content: 'seen' }];
        const source = { turnId: TURN_ID, messageId: message.id, stamp: `s${i}`, index: 0 };
        const tool = { ...input, specHash: start.specHash, toolCallId: `call_${i}`, source };
        const running = eventId++;
        feed({ type: 'scheduled', eventId: running, at: AT, activity: { name: 'callTool', input: tool } });
        feed({ type: 'ended', scheduledEventId: running, at: AT, end: { how: 'completed', records, stamp: `t${i}` } });
        task();
      }
      const open = { ...start, ...firstCallOf(start), messageId: 'msg_open', step: 9, recent: [] };
      if (isTerminated) {
        feed({ type: 'scheduled', eventId: eventId++, at: AT, activity: { name: 'callModel', input: open } });
        send();
        task();
        feed({ type: 'closed', at: AT, close: { how: 'terminated', reason: 'abandoned' } });
      }
      expect(contents(log)).toEqual(sent);
      const roles = transcript(log, ROOT_THREAD).map((item) => item.role);
      for (const [i, role] of roles.entries()) if (role === 'tool') expect(roles[i - 1]).toBe('assistant');
    }),
    { numRuns: 300 },
  );
});
