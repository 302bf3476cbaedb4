import { expect } from 'vitest';
import { folded } from '../../support/api-client.ts';
import type { Stored } from './check.ts';
import { planOf, type Plan } from './plan.ts';
import type { RecordedTurn, Recorder } from './recorder.ts';
import type { SentControl, SentInput, SentMessage } from './sent.ts';
import type { World } from './world.ts';

/** 12: what was sent to running turns, and to the queue behind them, counts once, in its order. */
export async function checkSteering(world: World, sessionId: string, turns: Stored[]): Promise<void> {
  const { recorder } = world;
  const controls = recorder.controls.filter((one) => one.sessionId === sessionId);
  const inputs = recorder.inputs.filter((one) => one.sessionId === sessionId);
  checkMessages(recorder.messages, sessionId, turns);
  checkPauses(controls, turns);
  for (const turn of turns) checkHeld(turn);
  checkForced(world, controls, turns);
  await checkQueue(world, inputs, turns);
}

/** 12: no request to a model contains a message twice. */
export function checkRequests({ model }: World): void {
  for (const { messages } of model.requests) {
    const plans = messages.flatMap(({ role, content }) => (role === 'user' ? (planOf(content)?.id ?? []) : []));
    expect(plans, 'the messages that a model has read').toEqual([...new Set(plans)]);
  }
}

/** A message that was acknowledged is in its turn, once; another one at most once. */
function checkMessages(messages: SentMessage[], sessionId: string, turns: Stored[]): void {
  const recorded = turns.flatMap(({ turn, events }) =>
    events.flatMap((event) => (event.type === 'user.steered' ? [`${turn.id} ${JSON.stringify(event.content)}`] : [])),
  );
  expect(recorded, 'a message is recorded once').toEqual([...new Set(recorded)]);
  const acknowledged = messages.flatMap((one) =>
    one.sessionId === sessionId && one.turnId !== undefined ? [`${one.turnId} ${JSON.stringify(one.text)}`] : [],
  );
  expect(recorded).toEqual(expect.arrayContaining(acknowledged));
  for (const { turn, events } of turns) {
    if (turn.state.status !== 'done' || turn.state.required_actions.length > 0) continue;
    const last = events.findLast(({ type }) => type === 'user.steered' || type === 'model.message');
    expect(last?.type, `turn ${turn.id} has answered all of its messages`).not.toBe('user.steered');
  }
}

/** No model call is scheduled between a pause and its end. A call that began before it may end, and may be repeated. */
function checkHeld({ turn, events }: Stored): void {
  let since: string | undefined;
  const held: { since: string; until: string }[] = [];
  for (const event of events) {
    if (event.type === 'turn.paused' && event.reason === 'requested') since = event.created_at;
    if (event.type !== 'turn.resumed' || event.reason !== 'requested' || since === undefined) continue;
    held.push({ since, until: event.created_at });
    since = undefined;
  }
  for (const event of events) {
    if (event.type !== 'model.message') continue;
    const its = held.filter((pause) => pause.since < event.created_at && event.created_at < pause.until);
    expect(its, `pauses of turn ${turn.id} around the begin of message ${event.id}`).toEqual([]);
  }
}

/** Pauses and their ends alternate. An acknowledged pause is in the log. */
function checkPauses(controls: SentControl[], turns: Stored[]): void {
  let recorded = 0;
  for (const { turn, events } of turns) {
    const its = events.flatMap((event) =>
      (event.type === 'turn.paused' || event.type === 'turn.resumed') && event.reason === 'requested'
        ? [event.type]
        : [],
    );
    expect(its, `pauses of turn ${turn.id}`).toEqual(its.map((_, i) => (i % 2 === 0 ? 'turn.paused' : 'turn.resumed')));
    recorded += its.filter((type) => type === 'turn.paused').length;
  }
  const sent = controls.filter(({ command }) => command === 'pause');
  expect(recorded, 'pauses in the log').toBeLessThanOrEqual(sent.length);
  expect(recorded, 'pauses in the log').toBeGreaterThanOrEqual(sent.filter(({ response }) => response === 200).length);
}

/** After a turn was told to answer, each of its threads ends the model call that runs, and offers no tools to the next. */
function checkForced({ planned }: World, controls: SentControl[], turns: Stored[]): void {
  for (const { command, turnId, response, answeredAt = 0 } of controls) {
    const stored = turns.find(({ turn }) => turn.id === turnId);
    if (command !== 'force_answer' || response !== 200 || !stored || stored.turn.state.status === 'running') continue;
    const end = Date.parse(stored.turn.state.completed_at) - performance.timeOrigin;
    // It has ended before: the session's next turn got the command.
    if (end < answeredAt) continue;
    for (const plan of plansOf(stored)) {
      const after = plan.steps.filter((_, step) => {
        const asked = planned.asked(plan, step);
        return asked.every(({ at }) => at > answeredAt) && asked.some(({ at, isForced }) => at < end && !isForced);
      });
      expect(after.length, `steps of ${plan.id} with tools, after ${turnId} was to answer`).toBeLessThanOrEqual(1);
    }
  }
}

function plansOf({ turn, events }: Stored): Plan[] {
  const texts = [
    ...turn.input.flatMap((item) => (item.type === 'user.message' ? [item.content] : [])),
    ...events.flatMap((event) => (event.type === 'user.steered' ? [event.content] : [])),
    ...events.flatMap((event) => (event.type === 'thread.created' ? [event.agent_info.input] : [])),
  ];
  return texts.flatMap((text) => planOf(text) ?? []);
}

/** The turns of the queue begin in the order of their requests. */
async function checkQueue({ recorder }: World, inputs: SentInput[], turns: Stored[]): Promise<void> {
  const begun = turns.map(({ turn }) => turn.id);
  const queued = inputs.flatMap(({ onRunning, turnId }) => (onRunning === 'queue' && turnId ? [turnId] : []));
  const inOrder = queued.filter((id) => begun.includes(id));
  expect(begun.filter((id) => inOrder.includes(id))).toEqual(inOrder);
  for (const { turnId, sessionId, done, frames } of unbegunOf(recorder, turns)) {
    if (!queued.includes(turnId)) continue;
    const what = `turn ${turnId}, which has not begun`;
    expect(await done, what).toMatchObject({ status: 'cancelled', reason: 'client-cancelled' });
    const replay = await recorder.as(recorder.ownerOf(sessionId)).subscribe(sessionId, turnId).done;
    expect(folded(replay).map((event) => 'type' in event && event.type)).toEqual(['turn.created', 'turn.done']);
    expect(folded(frames), what).toEqual(folded(replay));
  }
}

/** The turns that were cancelled in the queue: each has a log, and none is among the turns of its session. */
export function unbegunOf({ inputs, turns: recorded }: Recorder, begun: Stored[]): RecordedTurn[] {
  const queued = new Set(inputs.flatMap(({ onRunning, turnId }) => (onRunning === 'queue' && turnId ? [turnId] : [])));
  for (const { turn } of begun) queued.delete(turn.id);
  return recorded.filter(({ turnId }) => queued.has(turnId));
}
