import { expect } from 'vitest';
import { withTimeout } from '../../../src/lib/timeout.ts';
import type { SessionEvent } from '../../../src/api/sessions/wire/events.ts';
import type { TurnResource } from '../../../src/api/sessions/wire/resources.ts';
import { folded, foldedByTurn, inOrder, type Frame } from '../../support/api-client.ts';
import { find, readFolder } from '../../support/raw-stores.ts';
import { expectReplays } from '../../support/replay.ts';
import { callsOf, keyIn, keyOf } from './called.ts';
import { checkCode } from './check-code.ts';
import { checkDecisions, checkRunDecisions } from './check-decisions.ts';
import { checkEvents } from './check-events.ts';
import { checkRequests, checkSteering, unbegunOf } from './check-steering.ts';
import { checkSubjects } from './check-subjects.ts';
import { checkWebhooks } from './check-webhooks.ts';
import { effectOf, type Effect } from './ledger.ts';
import { answerOf, planOf, SECRET, TOKENS, type Plan, type PlannedModel } from './plan.ts';
import type { Recorder } from './recorder.ts';
import type { SentInput } from './sent.ts';
import type { World } from './world.ts';

/** A turn as it is stored, and as its owner can read it. */
export interface Stored {
  turn: TurnResource;
  events: SessionEvent[];
}

/** A turn, or a run, with the events of its log. */
export interface Log extends Pick<Stored, 'events'> {
  turn: Pick<TurnResource, 'id'>;
}

type Message = Extract<SessionEvent, { type: 'model.message' }>;

/** How long the last turn may take to end after the last fault. */
export const END_MS = 120_000;

/** Texts up to this length are never shortened, in characters. */
const SHOWN_WHOLE = 10_000;

/**
 * Checks the design's invariants against what clients received, what tools did and what is stored. It does not know the
 * faults: the invariants hold in any case. Returns the number of turns.
 */
export async function checkInvariants(world: World): Promise<number> {
  const { recorder, ledger, planned, config } = world;
  const sessions = new Map<string, Stored[]>();
  let missingAttempts = 0;
  for (const sessionId of new Set(recorder.inputs.map((input) => input.sessionId))) {
    sessions.set(sessionId, await stored(recorder, sessionId));
  }
  const turns = [...sessions.values()].flat();
  const unbegun = new Set(unbegunOf(recorder, turns).map(({ turnId }) => turnId));
  checkStreams(recorder, turns, unbegun);
  for (const [sessionId, its] of sessions) await checkSessionStream(recorder, sessionId, its);
  for (const reader of recorder.events) await checkEvents(reader, END_MS);
  for (const [sessionId, its] of sessions) {
    const inputs = recorder.inputs.filter((input) => input.sessionId === sessionId);
    checkInputs(inputs, its, unbegun);
    checkTexts(planned, its);
    checkOutcomes(its);
    checkDecisions(world, sessionId, its);
    checkThreads(its);
    checkCode(its);
    await checkSteering(world, sessionId, its);
    missingAttempts += checkUsage(planned, its);
  }
  checkRequests(world);
  expect(missingAttempts, 'attempts that no turn accounts for').toBe(0);
  for (const run of recorder.runs) await run.check(END_MS);
  const logs = await Promise.all(recorder.runs.map((run) => run.log()));
  for (const [i, log] of logs.entries()) {
    const run = recorder.runs[i];
    if (run) checkRunDecisions(run, log, ledger.effects);
  }
  checkEffects(ledger.effects, [...turns, ...logs]);
  await checkSubjects(world, sessions);
  const told = { api: recorder.api, sessions, unbegun: [...unbegun], timeoutMs: END_MS };
  if (world.webhook) await checkWebhooks(world.webhook, told);

  await expectReplays(config); // 8
  if (world.isEncrypted) await checkSecrecy(world.folder);
  return turns.length + logs.length;
}

/** 9: whatever failed, the stored data contains no plain text. */
async function checkSecrecy(folder: string): Promise<void> {
  const files = [...(await readFolder(folder))];
  // The other folders belong to the checker.
  const stored = new Map(files.filter(([name]) => !name.endsWith('.jsonl')));
  expect(find(SECRET, stored)).toEqual([]);
}

/** The turns of a session, oldest first, each followed to its end. */
async function stored(recorder: Recorder, sessionId: string): Promise<Stored[]> {
  const api = recorder.as(recorder.ownerOf(sessionId));
  const path = `/v1/agents/sessions/${sessionId}/turns`;
  const turns = (await api.list<TurnResource>(path, 25)).toReversed();
  const all: Stored[] = [];
  for (const { id } of turns) {
    const followed = recorder.turns.find(({ turnId }) => turnId === id) ?? recorder.follow(sessionId, id);
    await withTimeout(END_MS, followed.done, `turn ${id} does not end`);
    const { data: turn } = await api.get<{ data: TurnResource }>(`${path}/${id}`);
    const frames = await api.subscribe(sessionId, id).done;
    const events = folded(frames) as SessionEvent[];
    const listed = await api.list<SessionEvent>(`${path}/${id}/events`);
    // A replayed stream has the records of the lists.
    expect(events.filter(({ type }) => type !== 'turn.created' && type !== 'turn.done')).toEqual(listed);
    const ends = ['turn.created', 'turn.done'];
    expect(events.map(({ type }) => type).filter((type) => ends.includes(type))).toEqual(ends);
    all.push({ turn, events });
  }
  return all;
}

/** 1 and 6: whatever was cut, each reader's folded stream equals what is stored, to the last field. */
function checkStreams({ turns: recorded }: Recorder, turns: Stored[], unbegun: Set<string>): void {
  for (const { turnId, frames } of recorded.filter((turn) => !unbegun.has(turn.turnId))) {
    const found = turns.find(({ turn }) => turn.id === turnId);
    expect(inOrder(folded(frames)), `turn ${turnId}, as its reader has it`).toEqual(inOrder(found?.events ?? []));
    expectRising(frames);
    const end = frames.at(-1);
    expect(end?.type === 'turn.done' && end.state).toEqual(found?.turn.state);
  }
}

/** 1 for the stream of a session: its turns in their order, apart from those that an operator has deleted. */
async function checkSessionStream({ sessions }: Recorder, sessionId: string, turns: Stored[]): Promise<void> {
  const reader = sessions.find((session) => session.sessionId === sessionId);
  const last = turns.at(-1)?.turn.id;
  if (!reader || last === undefined) return;
  await withTimeout(END_MS, reader.untilDone(last), `the stream of session ${sessionId} lacks the end of ${last}`);
  const stored = new Set(turns.map(({ turn }) => turn.id));
  const received = foldedByTurn(reader.frames).filter(({ turnId }) => stored.has(turnId));
  expect(received.map(({ turnId, events }) => ({ turnId, events: inOrder(events) }))).toEqual(
    turns.map(({ turn, events }) => ({ turnId: turn.id, events: inOrder(events) })),
  );
  expectRising(reader.frames);
}

function expectRising(frames: Frame[]): void {
  const numbers = frames.map((frame) => frame.sequence_number);
  expect(numbers).toEqual([...new Set(numbers)].toSorted((a, b) => a - b));
}

/** 2: an accepted input is stored once, and a rejected one is not. */
function checkInputs(inputs: SentInput[], turns: Stored[], unbegun: Set<string>): void {
  expect(inputs.filter(({ outcome }) => outcome === 'under way')).toEqual([]);
  const accepted = inputs.filter(({ outcome, turnId = '' }) => outcome === 'accepted' && !unbegun.has(turnId));
  expect(turns.map(({ turn }) => turn.id).toSorted()).toEqual(
    accepted.flatMap(({ turnId }) => turnId ?? []).toSorted(),
  );
  for (const { turnId, input } of accepted) {
    const found = turns.find(({ turn }) => turn.id === turnId);
    expect(found?.turn.input).toEqual(input.map(asStored));
  }
}

/** Files are shown by their location, and long text by its beginning. */
function asStored(item: Record<string, unknown>): unknown {
  if (!Array.isArray(item['content'])) return expect.objectContaining(item);
  const content = item['content'].map(({ text, data, ...rest }: { text?: string; data?: string }) => ({
    ...rest,
    ...(text !== undefined && { text: text.length > SHOWN_WHOLE ? expect.any(String) : text }),
    ...(data !== undefined && { data: expect.stringMatching(/^(data:|\/v1\/)/) }),
  }));
  return expect.objectContaining({ ...item, content });
}

interface PlannedMessage {
  turn: TurnResource;
  message: Message;
  /** The model was not called, since its servers require a sign-in. */
  needsSignIn: boolean;
  plan: Plan;
  step: number;
}

/** The messages of a session, each with its step of the plan: a sub-agent's is in its input. */
function* stepsOf(turns: Stored[]): Generator<PlannedMessage> {
  const places = new Map<string, { plan: Plan | undefined; step: number }>();
  for (const { turn, events } of turns) {
    const [first] = turn.input;
    if (first?.type === 'user.message') places.set('main', { plan: planOf(first.content), step: 0 });
    for (const [i, event] of events.entries()) {
      if (event.type === 'thread.created') {
        places.set(event.thread_id, { plan: planOf(event.agent_info.input), step: 0 });
      }
      const place = event.type === 'model.message' ? places.get(event.thread_id) : undefined;
      const steered = event.type === 'user.steered' ? planOf(event.content) : undefined;
      if (steered) places.set('main', { plan: steered, step: 0 });
      if (event.type !== 'model.message' || !place?.plan) continue;
      const needsSignIn = events[i + 1]?.type === 'mcp.auth_required';
      yield { turn, message: event, needsSignIn, plan: place.plan, step: place.step };
      if (isWhole(event)) place.step += 1;
    }
  }
}

function isWhole({ finish_reason: reason }: Message): boolean {
  return reason === 'stop' || reason === 'tool_calls';
}

/**
 * Every message has the output of one of the model's attempts, once; a turn that ended well has not stopped
 * half-way.
 */
function checkTexts(planned: PlannedModel, turns: Stored[]): void {
  const last = new Map<string, { plan: Plan; step: number }>();
  for (const { turn, message, needsSignIn, plan, step } of stepsOf(turns)) {
    const answers = answersTo(planned, plan, step);
    if (isWhole(message)) {
      const calls = message.tool_calls.map(({ id, function: { name } }) => `${name} ${id}`);
      expect(answers, `message ${message.id}`).toContainEqual({ say: message.content, calls });
    } else if (needsSignIn) {
      expect(message.content).toBe('');
    } else {
      // A call may be cancelled before the model is called.
      const isBeginning = message.content === '' || answers.some(({ say }) => say.startsWith(message.content));
      expect(isBeginning, `${message.content} is the beginning of ${JSON.stringify(answers)}`).toBe(true);
      expect(turn.state.status, `turn ${turn.id}, whose last message was cut off`).not.toBe('done');
    }
    if (message.thread_id === 'main') last.set(turn.id, { plan, step });
  }
  for (const { turn } of turns) {
    const at = last.get(turn.id);
    if (!at || turn.state.status !== 'done' || turn.state.required_actions.length > 0) continue;
    if (planned.asked(at.plan, at.step).some(({ isForced }) => isForced)) continue;
    expect(at.step, `steps of turn ${turn.id}`).toBeGreaterThanOrEqual(at.plan.steps.length - 1);
  }
}

/** The model's output at a step of a plan, in each of its attempts. */
function answersTo(planned: PlannedModel, plan: Plan, step: number): { say: string; calls: string[] }[] {
  const asked = plan.steps[step];
  if (!asked) return [{ say: 'Done.', calls: [] }];
  return planned.asked(plan, step).map(({ isForced }, attempt) => {
    const { say, tools } = answerOf(asked, attempt, isForced);
    return { say, calls: tools.map(({ name, id }) => `${name} ${id}`) };
  });
}

/** 3: every call has exactly one outcome, or is pending. */
function checkOutcomes(turns: Stored[]): void {
  // The answer to a server that asks is not the end of its call.
  const ofServers = new Set(callsOf(turns).flatMap(({ key, server }) => (server === undefined ? [] : [key])));
  const ends = turns.flatMap(({ turn, events }) => [
    ...events.flatMap((event) => (event.type === 'tool.response' ? [keyIn(event)] : [])),
    ...turn.input.flatMap((item) =>
      item.type === 'user.tool_response' && !ofServers.has(keyIn(item)) ? [keyIn(item)] : [],
    ),
  ]);
  const last = turns.at(-1)?.turn.state;
  const actions = last?.status === 'done' ? last.required_actions : [];
  const waiting = actions.flatMap(({ thread_id: thread, tool_calls: calls }) =>
    calls.map(({ id }) => `${thread} ${id}`),
  );
  if (waiting.length > 0) waiting.push(...openThreads(turns).map(({ parent }) => keyIn(parent)));
  expect([...ends, ...waiting].toSorted()).toEqual(
    callsOf(turns)
      .map(({ key }) => key)
      .toSorted(),
  );
}

/** The sub-agents that have not ended. */
function openThreads(turns: Stored[]): Extract<SessionEvent, { type: 'thread.created' }>[] {
  const events = turns.flatMap((one) => one.events);
  const done = new Set(events.flatMap((event) => (event.type === 'thread.done' ? [event.thread_id] : [])));
  return events.filter((event) => event.type === 'thread.created').filter((event) => !done.has(event.thread_id));
}

/**
 * 4: the tool calls that ran are those of the log: this tool of this server, with these arguments, for this operation. At
 * most one effect of calls that must not be repeated; exactly one of those that may. A speculative
 * call has no effects: it may run for a message that the history did not accept, or for a turn that was cancelled.
 */
function checkEffects(effects: Effect[], turns: Log[]): void {
  const calls = new Map(callsOf(turns).map((call) => [call.operation, call]));
  const responses = new Map(
    turns.flatMap(({ events }) =>
      events.flatMap((event) => (event.type === 'tool.response' ? [[keyIn(event), event] as const] : [])),
    ),
  );
  for (const { operation, isSpeculative, server, tool, arguments: args } of effects) {
    if (isSpeculative) {
      expect(effectOf(tool), `the effect of ${tool}, a speculative call, in ${operation}`).toBe('none');
      continue;
    }
    const call = calls.get(operation);
    const approved: unknown = responses.get(keyOf(operation))?.arguments ?? JSON.parse(call?.arguments ?? '{}');
    const called = call && { server: call.server, tool: call.tool, args: approved };
    expect({ server, tool, args }, `what ran as ${operation}, and what was called`).toEqual(called);
    const response = responses.get(keyOf(operation));
    expect(response?.outcome, `${operation} has run`).not.toMatch(/^(denied|expired)$/);
    expect(response?.content, `${operation} has run`).not.toMatch(/not executed/);
  }
  const asked = turns.flatMap(({ events }) =>
    events.flatMap((event) =>
      event.type === 'tool.response_required'
        ? event.tool_calls.map((call) => ({ ...call, key: `${event.thread_id} ${call.id}` }))
        : [],
    ),
  );
  for (const { key, operation, tool } of calls.values()) {
    const its = effects.filter((effect) => effect.tool === tool && effect.operation === operation);
    const effect = effectOf(tool);
    // A person may have a call run again whose outcome is unknown.
    const runs = 1 + asked.filter((one) => one.key === key && one.unknown_outcome !== undefined).length;
    if (effect === 'once') expect(its.length, `${tool} ${key} ran`).toBeLessThanOrEqual(runs);
    const took = its.filter(({ tookEffect }) => tookEffect).length;
    if (effect === undefined || responses.get(key)?.outcome !== 'succeeded') continue;
    expect(its.length, `${tool} ${key} succeeded`).toBeGreaterThan(0);
    if (effect === 'none') continue;
    expect(took, `${tool} ${key} succeeded`).toBeGreaterThan(0);
    expect(took, `${tool} ${key} succeeded`).toBeLessThanOrEqual(effect === 'once' ? runs : 1);
  }
}

/** Each thread of a sub-agent or of code starts once and ends once, unless it waits in the last turn. */
function checkThreads(turns: Stored[]): void {
  const idsOf = (type: 'thread.created' | 'thread.done'): string[] =>
    turns.flatMap(({ events }) => events.flatMap((event) => (event.type === type ? [event.thread_id] : [])));
  const [created, done] = [idsOf('thread.created'), idsOf('thread.done')];
  expect(created, 'threads that started').toEqual([...new Set(created)]);
  expect(done, 'threads that ended').toEqual([...new Set(done)]);
  const last = turns.at(-1)?.turn.state;
  if (last?.status === 'done' && last.required_actions.length > 0) return;
  expect(done.toSorted(), 'threads that ended').toEqual(created.toSorted());
}

/**
 * 7: the usage of each model call is in the sum of its turn: with its cost, or as an attempt whose cost is unknown.
 * Returns the number of attempts that are missing.
 */
function checkUsage(planned: PlannedModel, turns: Stored[]): number {
  const taken = [...stepsOf(turns)];
  let missing = 0;
  for (const { turn, events } of turns) {
    if (turn.state.status === 'running') continue;
    const { metrics } = turn.state;
    const messages = events.filter((event) => event.type === 'model.message');
    const reported = messages.reduce((sum, { usage }) => sum + (usage?.output_tokens ?? 0), 0);
    expect(metrics.total_output_tokens).toBe(reported);
    // Only one attempt is known of a call that was cancelled between two.
    if (turn.state.status === 'cancelled') continue;
    const begun = taken
      .filter((one) => one.turn.id === turn.id)
      // One call may have begun ahead of each step after the first, and is no attempt if it was not claimed.
      .map(({ plan, step }) => leastAttempts(planned.begun(plan, step), step))
      .reduce((sum, count) => sum + count, 0);
    const accounted = metrics.total_output_tokens / TOKENS.completion_tokens + metrics.unreported_attempts;
    missing += Math.max(0, begun - accounted);
  }
  return missing;
}

/** How many of the model calls of a step were attempts at its message at least. */
function leastAttempts(begun: number, step: number): number {
  return step === 0 ? begun : Math.max(Math.min(1, begun), begun - 1);
}
