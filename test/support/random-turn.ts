import { fc } from './fast-check.ts';
import { applyDelta, emptyText, type MessageDelta, type MessageText } from '../../src/core/message.ts';
import type { HistoryEvent, TurnContinuation, TurnResult, TurnStart } from '../../src/core/history.ts';
import { eventId } from '../../src/core/ids.ts';
import { firstCallOf } from '../../src/core/turn.ts';
import type { ToolCall } from '../../src/core/records/calls.ts';
import type { MessagePlan, ModelMessage } from '../../src/core/records/message.ts';
import type { PendingCall } from '../../src/core/records/pending.ts';
import { serversConnected, type McpInitialized } from '../../src/core/records/servers.ts';
import { storedSections } from '../../src/core/sections.ts';
import { NO_TOTALS } from '../../src/core/turn-totals.ts';
import type { LiveFrame } from '../../src/live/bus.ts';

/** One step of a turn's execution: a commit to its history, or a frame on the bus. */
export type TurnStep = { event: HistoryEvent } | { frame: LiveFrame };

export const TURN_ID = 'turn_01jd0000000000000000000000';
export const AT = '2026-11-21T08:00:00.000Z';

export function turnStart(overrides: Partial<TurnStart> = {}): TurnStart {
  return {
    turnId: TURN_ID,
    sessionId: 'ses_01jd0000000000000000000000',
    sequence: 1,
    previousTurnId: null,
    createdAt: AT,
    createdBy: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
    owner: { subjectId: 'ann', draftRoles: null },
    input: [{ type: 'user.message', content: 'hi' }],
    title: null,
    specHash: 'a1',
    hasServers: false,
    limits: { iterations: 100, seconds: 3600, toolSeconds: 600, toolHeartbeatSeconds: 60, subAgents: 5 },
    ...overrides,
  };
}

/** The state that a run of a turn whose root agent has called its model once hands to the next one. */
export function continuation(overrides: Partial<TurnContinuation> = {}): TurnContinuation {
  return structuredClone({
    ...NO_TOTALS,
    ordinal: 2,
    threads: [{ steps: 1 }],
    pauses: { reasons: [], waitedMs: 0 },
    steering: { unread: 0 },
    signIns: { threads: [], ended: [] },
    results: [],
    previousRunId: 'r',
    deadline: 0,
    ...overrides,
  });
}

const words = fc.string({ minLength: 0, maxLength: 6, unit: 'binary' });
const some = fc.string({ minLength: 1, maxLength: 6, unit: 'binary' });

export const attempt = fc.record({
  pieces: fc.array(fc.record({ content: some, reasoning: fc.option(words, { nil: undefined }) }), { maxLength: 4 }),
  calls: fc.array(fc.array(words, { maxLength: 3 }), { maxLength: 2 }),
  /** How many servers it has reached, if it is one of the first message. */
  servers: fc.nat({ max: 2 }),
});
export type Attempt = typeof attempt extends fc.Arbitrary<infer A> ? A : never;

const step = (maxAttempts: number) =>
  fc.record({
    attempts: fc.array(attempt, { minLength: 1, maxLength: maxAttempts }),
    end: fc.constantFrom('completed', 'completed', 'completed', 'cancelled', 'failed', 'timed_out'),
    toolEnd: fc.constantFrom('completed', 'completed', 'timed_out', 'cancelled', 'failed'),
  });

const ending = fc.constantFrom('done', 'pending', 'cancelled', 'error', 'terminated', 'open-terminated', 'timed_out');

/**
 * A speculative call, which streams as attempt 0 before the first model call is scheduled. Its activity continues its
 * message after these frames, or replaces it, or the turn ends before that.
 */
const ahead = fc.record({
  shape: attempt,
  outcome: fc.constantFrom('continued', 'continued', 'replaced', 'replaced', 'ended'),
  frames: fc.nat({ max: 4 }),
});

/** Turns of every shape and outcome, with retried model calls whose earlier attempts still stream after the next started. */
export function randomTurn(maxAttempts = 3): fc.Arbitrary<TurnStep[]> {
  const steps = fc.array(step(maxAttempts), { minLength: 1, maxLength: 4 });
  const oneAttempt = ahead.map((some) => ({ ...some, outcome: 'continued' }));
  const speculative = fc.option(maxAttempts === 1 ? oneAttempt : ahead, { nil: undefined });
  const hasServers = fc.boolean();
  return fc.record({ steps, ending, zombies: fc.boolean(), hasServers, speculative }).map(stepsOf);
}

type Shape = {
  steps: (ReturnType<typeof step> extends fc.Arbitrary<infer S> ? S : never)[];
  ending: string;
  zombies: boolean;
  hasServers: boolean;
  speculative:
    | (Omit<typeof ahead extends fc.Arbitrary<infer A> ? A : never, 'outcome'> & { outcome: string })
    | undefined;
};

function stepsOf({ steps, ending, zombies, hasServers, speculative }: Shape): TurnStep[] {
  const start = turnStart({ hasServers });
  const turnSteps: TurnStep[] = [{ event: { type: 'started', at: AT, start } }];
  const first = firstCallOf(start);
  const speculated = speculative ? framesOf(first, 0, speculative.shape) : [];
  if (speculative?.outcome === 'ended') {
    const close = { how: 'terminated' as const, reason: 'client-cancelled' as const };
    const [before, after] = [speculated.slice(0, speculative.frames), speculated.slice(speculative.frames)];
    turnSteps.push(...before.map((frame) => ({ frame })), { event: { type: 'closed', at: AT, close } });
    return [...turnSteps, ...after.map((frame) => ({ frame }))];
  }
  let lastEventId = 5;
  let ordinal = 1;
  let pending: PendingCall[] = [];
  let late: LiveFrame[] = [];
  for (const [s, { attempts, end, toolEnd }] of steps.entries()) {
    const last = s === steps.length - 1;
    const plan = s === 0 ? first : { threadId: 'main', messageId: `msg_${s}`, createdAt: AT, upTo: ordinal };
    const { messageId } = plan;
    const place = { turnId: TURN_ID, sessionId: 'ses_1', threadId: 'main' };
    const input = { ...place, ...plan, previousTurnId: null, sequence: 1, specHash: 'a1', step: s, recent: [] };
    const isContinued = s === 0 && speculative?.outcome === 'continued';
    if (s === 0 && speculative) {
      const frames = isContinued ? framesOf(plan, 0, attempts[0] ?? speculative.shape) : speculated;
      turnSteps.push(...frames.slice(0, speculative.frames).map((frame) => ({ frame })));
      if (!isContinued && zombies) late = frames.slice(speculative.frames);
    }
    const scheduled = lastEventId++;
    turnSteps.push({
      event: { type: 'scheduled', eventId: scheduled, at: AT, activity: { name: 'callModel', input } },
    });
    let text = emptyText();
    let preceding: McpInitialized[] = [];
    for (const [a, shape] of attempts.entries()) {
      text = emptyText();
      preceding = precedingOf(plan, shape);
      const continued = isContinued && a === 0;
      const all = framesOf(plan, continued ? 0 : a + 1, shape);
      for (const { delta } of all) applyDelta(text, delta);
      const frames = continued ? all.slice(speculative.frames) : all;
      // A zombie attempt continues to stream after the first frames of the next attempt.
      const cut = zombies && a < attempts.length - 1 ? Math.floor(frames.length / 2) : frames.length;
      const [first, ...rest] = frames.slice(0, cut).map((frame) => ({ frame }));
      if (first) turnSteps.push(first);
      turnSteps.push(...late.map((frame) => ({ frame })), ...rest);
      late = frames.slice(cut);
    }
    if (last && ending === 'open-terminated') break;
    const message = messageOf(messageId, text, ending === 'pending' && last);
    turnSteps.push({
      event: {
        type: 'ended',
        scheduledEventId: scheduled,
        at: AT,
        end:
          end === 'completed' || last
            ? { how: 'completed', records: [...preceding, message] }
            : end === 'cancelled'
              ? { how: 'cancelled', started: true }
              : end === 'failed'
                ? { how: 'failed', message: 'no' }
                : { how: 'timed_out' },
      },
    });
    ordinal += plan.connectsServers ? 2 : 1;
    if (end !== 'completed' && !last) continue;
    for (const [index, call] of message.toolCalls.entries()) {
      if (call.route.to !== 'server' || call.route.approval) {
        pending.push({
          threadId: 'main',
          toolCallId: call.id,
          needs: 'approval',
          source: { turnId: TURN_ID, messageId, stamp: 's', index },
        });
        continue;
      }
      const id = lastEventId++;
      const source = { turnId: TURN_ID, messageId, stamp: 's', index, run: { effect: 'once' as const, callHash: 'h' } };
      const toolInput = { ...place, specHash: 'a1', toolCallId: call.id, source };
      turnSteps.push({
        event: { type: 'scheduled', eventId: id, at: AT, activity: { name: 'callTool', input: toolInput } },
      });
      if (last && ending === 'terminated') continue;
      turnSteps.push({
        event: {
          type: 'ended',
          scheduledEventId: id,
          at: AT,
          end:
            toolEnd === 'completed'
              ? {
                  how: 'completed',
                  records: [
                    {
                      kind: 'tool.response',
                      at: AT,
                      threadId: 'main',
                      toolCallId: call.id,
                      outcome: 'succeeded',
                      content: `result of ${call.id}`,
                    },
                  ],
                }
              : toolEnd === 'cancelled'
                ? { how: 'cancelled', started: false }
                : toolEnd === 'failed'
                  ? { how: 'failed', message: 'no' }
                  : { how: 'timed_out' },
        },
      });
      ordinal += 1;
    }
  }
  if (ending !== 'pending') pending = [];
  turnSteps.push({ event: { type: 'closed', at: AT, close: closeOf(ending, pending) } });
  turnSteps.push(...late.map((frame) => ({ frame })));
  return turnSteps;
}

function closeOf(ending: string, pending: PendingCall[]) {
  const completed = (result: TurnResult) => ({ how: 'completed' as const, result });
  switch (ending) {
    case 'done':
    case 'pending':
      return completed({ status: 'done', pending });
    case 'cancelled':
      return completed({ status: 'cancelled', reason: 'client-cancelled' });
    case 'error':
      return completed({ status: 'error', message: 'broken' });
    case 'timed_out':
      return { how: 'timed_out' as const };
    default:
      return { how: 'terminated' as const, reason: 'abandoned' as const };
  }
}

/** The frames of one attempt at a message. */
export function framesOf(plan: MessagePlan, attempt: number, shape: Attempt): LiveFrame[] {
  const { threadId, messageId, createdAt, upTo: after } = plan;
  const [preceding] = precedingOf(plan, shape);
  return deltasOf(shape, messageId, attempt).map((delta, n) => ({
    turnId: TURN_ID,
    threadId,
    messageId,
    createdAt,
    after,
    attempt,
    n,
    delta,
    ...(n === 0 && preceding && { preceding }),
  }));
}

/** The record before a message, as an attempt has made it. */
export function precedingOf(plan: MessagePlan, { servers: count }: Attempt): McpInitialized[] {
  if (!plan.connectsServers) return [];
  const transport = 'streamable-http' as const;
  const servers = Array.from({ length: count }, (_, i) => ({ id: `s${i}`, name: `s${i}`, sessionId: null, transport }));
  return [{ ...serversConnected(plan, { servers }), id: eventId(TURN_ID, plan.upTo + 1) }];
}

function deltasOf({ pieces, calls }: Attempt, message: string, attempt: number): MessageDelta[] {
  const deltas: MessageDelta[] = pieces.map(({ content, reasoning }) => ({ content, ...(reasoning && { reasoning }) }));
  for (const [index, [first, ...rest]] of calls.entries()) {
    const info = { type: 'system' as const, name: 'look' };
    deltas.push({
      toolCalls: [{ index, id: `call_${message}_${attempt}_${index}`, name: 'look', info, arguments: first ?? '' }],
    });
    for (const piece of rest) deltas.push({ toolCalls: [{ index, arguments: piece }] });
  }
  return deltas;
}

export function messageOf(id: string, text: MessageText, gated: boolean, threadId = 'main'): ModelMessage {
  const { toolCalls, sections, ...rest } = text;
  const route = { to: 'server' as const, effect: 'once' as const, approval: gated, callHash: 'h' };
  return {
    kind: 'model.message',
    id,
    at: AT,
    threadId,
    ...rest,
    ...storedSections(sections),
    toolCalls: toolCalls.map((call): ToolCall => ({ ...call, route })),
    finishReason: toolCalls.length > 0 ? 'tool_calls' : 'stop',
    usage: { inputTokens: 3, outputTokens: 2, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
  };
}
