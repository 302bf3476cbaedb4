import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { begunCall } from '../../../test/support/begun-call.ts';
import { BusTap } from '../../../test/support/bus-tap.ts';
import { NO_SUB_AGENTS } from '../../../test/support/no-sub-agents.ts';
import { applyDelta, emptyText } from '../../core/message.ts';
import type { SpeculativeCall } from '../../engine/speculation.ts';
import { InProcessBus } from '../../live/in-process-bus.ts';
import { NO_USAGE } from '../../core/records/usage.ts';
import type { ModelChunk } from '../../models/provider.ts';
import type { SpeculativeCallOutcome } from '../../telemetry/metrics.ts';
import { SpeculativeCalls, type ClaimedMessage, type StartSpeculativeCall } from './speculative-calls.ts';

const START: SpeculativeCall = {
  turnId: 'turn_1',
  sessionId: 'ses_1',
  previousTurnId: 'turn_0',
  after: 'turn_0',
  sequence: 2,
  createdAt: '2026-01-01T00:00:00.000Z',
  createdBy: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
  owner: { subjectId: 'ann', draftRoles: null },
  input: [],
  specHash: 'spec',
};

let speculativeCalls: SpeculativeCalls;
let bus: InProcessBus;
let outcomes: SpeculativeCallOutcome[];
const stop = new AbortController();
const never = new AbortController().signal;
beforeEach(() => {
  outcomes = [];
  bus = new InProcessBus();
  speculativeCalls = new SpeculativeCalls((outcome) => void outcomes.push(outcome));
});
afterEach(() => void vi.useRealTimers());

/** A model that streams these words, and unless it `ends`, waits for the call's end. */
function model(words: string[], ends = true): { start: StartSpeculativeCall; signal: () => AbortSignal | undefined } {
  let given: AbortSignal | undefined;
  async function* chunks(signal: AbortSignal): AsyncGenerator<ModelChunk> {
    for (const content of words) yield { content };
    if (!ends) await new Promise((resolve) => void signal.addEventListener('abort', resolve));
  }
  return {
    start: (call, signal) => {
      given = signal;
      return Promise.resolve(begunCall(call, chunks(signal), { bus }));
    },
    signal: () => given,
  };
}

/** Settles when all calls that were offered have been sent to the model. */
async function allSent(): Promise<void> {
  await new Promise((resolve) => void setImmediate(resolve));
}

/** The whole message of a claimed call. */
async function textOf(claimed: ClaimedMessage | undefined): Promise<string | undefined> {
  if (!claimed) return undefined;
  await claimed.ended;
  return contentOf(claimed);
}

/** The message so far. */
async function contentOf({ message }: ClaimedMessage): Promise<string> {
  const [record] = await message.records('cancelled', NO_USAGE, NO_SUB_AGENTS);
  return record?.kind === 'model.message' ? record.content : '';
}

/** The text of attempt 0 that the readers of the turn have been shown, without gaps. */
function shownOf({ frames }: BusTap): string {
  const text = emptyText();
  for (const [n, frame] of frames.entries()) {
    expect(frame).toMatchObject({ attempt: 0, n, messageId: 'msg_1', after: 1, createdAt: START.createdAt });
    applyDelta(text, frame.delta);
  }
  return text.content;
}

const accepted = { turnId: START.turnId, previousTurnId: START.previousTurnId, sequence: START.sequence };

test('an answer is claimed once, with all chunks that arrived before', async () => {
  speculativeCalls.serve(model(['a', 'b', 'c']).start, stop.signal);
  speculativeCalls.offer(START);
  await allSent();
  expect(await textOf(await speculativeCalls.claim(START, never))).toBe('abc');
  expect(await speculativeCalls.claim(START, never)).toBeUndefined();
  expect(outcomes).toEqual(['claimed']);
});

test('an offer after its claim starts no call', async () => {
  const { start, signal } = model(['a']);
  speculativeCalls.serve(start, stop.signal);
  expect(await speculativeCalls.claim(START, never)).toBeUndefined();
  speculativeCalls.offer(START);
  expect(signal()).toBeUndefined();
});

test.each([{ previousTurnId: 'turn_x' }, { previousTurnId: null }, { sequence: 3 }, { specHash: 'other' }])(
  'the answer of a mismatched call (%j) is ended, not claimed',
  async (other) => {
    const { start, signal } = model(['a'], false);
    speculativeCalls.serve(start, stop.signal);
    speculativeCalls.offer(START);
    await allSent();
    expect(await speculativeCalls.claim({ ...START, ...other }, never)).toBeUndefined();
    expect(outcomes).toEqual(['mismatched']);
    expect(signal()?.aborted).toBe(true);
  },
);

test('a withdrawn call is ended, and its claim finds no answer', async () => {
  const { start, signal } = model(['a'], false);
  speculativeCalls.serve(start, stop.signal);
  speculativeCalls.offer(START);
  speculativeCalls.withdraw(START.turnId);
  expect(signal()?.aborted).toBe(true);
  expect(outcomes).toEqual(['withdrawn']);
  expect(await speculativeCalls.claim(START, never)).toBeUndefined();
});

test('an unclaimed call expires; a claimed one continues', async () => {
  vi.useFakeTimers();
  const calls: AbortSignal[] = [];
  const { start } = model(['a'], false);
  speculativeCalls.serve((call, signal) => {
    calls.push(signal);
    return start(call, signal);
  }, stop.signal);
  speculativeCalls.offer(START);
  speculativeCalls.offer({ ...START, turnId: 'turn_2' });
  await speculativeCalls.claim(START, never);
  vi.advanceTimersByTime(60_000);
  expect(calls.map(({ aborted }) => aborted)).toEqual([false, true]);
  expect(outcomes).toEqual(['claimed', 'expired']);
});

test('the claimant of an answer can end it', async () => {
  const { start, signal } = model(['a'], false);
  const caller = new AbortController();
  speculativeCalls.serve(start, stop.signal);
  speculativeCalls.offer(START);
  const claimed = await speculativeCalls.claim(START, caller.signal);
  await allSent();
  caller.abort();
  expect(await textOf(claimed)).toBe('a');
  expect(signal()?.aborted).toBe(true);
});

test("no listener stays on the caller's signal after an answer has ended, or failed to start", async () => {
  const caller = new AbortController().signal;
  const listeners = (): number => getEventListeners(caller, 'abort').length;
  speculativeCalls.serve(model(['a', 'b']).start, stop.signal);
  speculativeCalls.offer(START);
  const claimed = await speculativeCalls.claim(START, caller);
  expect(listeners()).toBe(1);
  expect(await textOf(claimed)).toBe('ab');
  await allSent();
  expect(listeners()).toBe(0);

  speculativeCalls.serve(() => Promise.reject(new Error('no catalog')), stop.signal);
  const next = { ...START, turnId: 'turn_2' };
  speculativeCalls.offer(next);
  expect(await speculativeCalls.claim(next, caller)).toBeUndefined();
  expect(listeners()).toBe(0);
});

test('a call that failed to start has no answer; a later failure reaches the claimant', async () => {
  speculativeCalls.serve(() => Promise.reject(new Error('no catalog')), stop.signal);
  speculativeCalls.offer(START);
  expect(await speculativeCalls.claim(START, never)).toBeUndefined();

  async function* broken(): AsyncGenerator<ModelChunk> {
    yield { content: 'a' };
    throw new Error('cut off');
  }
  speculativeCalls.serve((call) => Promise.resolve(begunCall(call, broken())), stop.signal);
  const next = { ...START, turnId: 'turn_2' };
  speculativeCalls.offer(next);
  await allSent();
  const claimed = await speculativeCalls.claim(next, never);
  await expect(claimed?.ended).rejects.toThrow('cut off');
  expect(claimed && (await contentOf(claimed))).toBe('a');
});

test('nothing is shown before the turn is accepted; then all that has arrived, and each chunk; the claim continues it', async () => {
  const tap = new BusTap(bus, START.turnId);
  const more = Promise.withResolvers<void>();
  speculativeCalls.serve(
    (call) =>
      Promise.resolve(
        begunCall(
          call,
          (async function* () {
            yield { content: 'a' };
            yield { content: 'b' };
            await more.promise;
            yield { content: 'c' };
          })(),
          { bus },
        ),
      ),
    stop.signal,
  );
  speculativeCalls.offer(START);
  await allSent();
  expect(tap.frames).toEqual([]);
  speculativeCalls.accept(accepted);
  await allSent();
  expect(shownOf(tap)).toBe('ab');
  const claimed = await speculativeCalls.claim(START, never);
  more.resolve();
  expect(await textOf(claimed)).toBe('abc');
  expect(shownOf(tap)).toBe('abc');
  claimed?.message.finish();
  expect(inProgress()).toBe(0);
});

test('a claim before the acceptance shows the message, once', async () => {
  const tap = new BusTap(bus, START.turnId);
  speculativeCalls.serve(model(['a', 'b']).start, stop.signal);
  speculativeCalls.offer(START);
  await textOf(await speculativeCalls.claim(START, never));
  speculativeCalls.accept(accepted);
  await allSent();
  expect(shownOf(tap)).toBe('ab');
});

test('a call that is accepted before it has begun is shown when it has', async () => {
  const tap = new BusTap(bus, START.turnId);
  const begun = Promise.withResolvers<void>();
  const { start } = model(['a', 'b']);
  speculativeCalls.serve((call, signal) => begun.promise.then(() => start(call, signal)), stop.signal);
  speculativeCalls.offer(START);
  speculativeCalls.accept(accepted);
  begun.resolve();
  await allSent();
  expect(shownOf(tap)).toBe('ab');
});

test.each([{ previousTurnId: 'turn_x' }, { sequence: 3 }])(
  'a call for another place in the session (%j) than the accepted one is ended, and shows nothing',
  async (other) => {
    const tap = new BusTap(bus, START.turnId);
    const { start, signal } = model(['a'], false);
    speculativeCalls.serve(start, stop.signal);
    speculativeCalls.offer(START);
    await allSent();
    speculativeCalls.accept({ ...accepted, ...other });
    await allSent();
    expect(signal()?.aborted).toBe(true);
    expect(outcomes).toEqual(['mismatched']);
    expect(tap.frames).toEqual([]);
    expect(await speculativeCalls.claim({ ...START, ...other }, never)).toBeUndefined();
  },
);

test.each(['withdrawn', 'expired', 'mismatched', 'skipped', 'stopped', 'claimed and ended'])(
  'a message that is shown and then %s is not in progress any more, and shows nothing further',
  async (how) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const tap = new BusTap(bus, START.turnId);
    const [draining, caller] = [new AbortController(), new AbortController()];
    const more = Promise.withResolvers<void>();
    speculativeCalls.serve(
      (call) =>
        Promise.resolve(
          begunCall(
            call,
            (async function* () {
              yield { content: 'a' };
              await more.promise;
              yield { content: 'b' };
            })(),
            { bus },
          ),
        ),
      draining.signal,
    );
    speculativeCalls.offer(START);
    speculativeCalls.accept(accepted);
    await allSent();
    expect(inProgress()).toBe(1);
    if (how === 'withdrawn') speculativeCalls.withdraw(START.turnId);
    if (how === 'expired') vi.advanceTimersByTime(30_000);
    if (how === 'mismatched') await speculativeCalls.claim({ ...START, specHash: 'x' }, never);
    if (how === 'skipped') speculativeCalls.skip(START.turnId);
    if (how === 'stopped') draining.abort();
    if (how === 'claimed and ended') {
      await speculativeCalls.claim(START, caller.signal);
      caller.abort();
    }
    expect(inProgress()).toBe(0);
    more.resolve();
    await allSent();
    expect(shownOf(tap)).toBe('a');
    expect(inProgress()).toBe(0);
  },
);

/** How many messages of the turn the bus holds. */
function inProgress(): number {
  let count = 0;
  const ignore = (): void => undefined;
  const stopListening = bus.subscribe(START.turnId, {
    frame: ignore,
    snapshot: () => (count += 1),
    retrying: ignore,
    output: ignore,
    lost: ignore,
  });
  bus.requestSnapshots(START.turnId);
  stopListening();
  return count;
}

test('a worker that stops ends its unclaimed calls, and starts no more', async () => {
  const { start, signal } = model(['a'], false);
  const draining = new AbortController();
  speculativeCalls.serve(start, draining.signal);
  speculativeCalls.offer(START);
  draining.abort();
  expect(signal()?.aborted).toBe(true);
  speculativeCalls.offer({ ...START, turnId: 'turn_2' });
  expect(await speculativeCalls.claim({ ...START, turnId: 'turn_2' }, never)).toBeUndefined();
});

test('an activity that calls the model itself ends the started call, and no later offer starts one', async () => {
  const { start, signal } = model(['a'], false);
  speculativeCalls.serve(start, stop.signal);
  speculativeCalls.offer(START);
  await allSent();
  speculativeCalls.skip(START.turnId);
  expect(signal()?.aborted).toBe(true);
  expect(outcomes).toEqual(['withdrawn']);
  speculativeCalls.skip(START.turnId);

  speculativeCalls.skip('turn_2');
  speculativeCalls.offer({ ...START, turnId: 'turn_2' });
  expect(await speculativeCalls.claim({ ...START, turnId: 'turn_2' }, never)).toBeUndefined();
});

test.each(['withdrawn', 'expired', 'withdrawn before it was sent', 'failed'])(
  'a call (%s) is not claimed any more',
  async (how) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const answers: Record<string, StartSpeculativeCall> = {
      failed: () => Promise.reject(new Error('no catalog')),
      'withdrawn before it was sent': () => new Promise(() => undefined),
    };
    speculativeCalls.serve(answers[how] ?? model(['a'], false).start, stop.signal);
    speculativeCalls.offer(START);
    await allSent();
    if (how === 'expired') vi.advanceTimersByTime(30_000);
    else speculativeCalls.withdraw(START.turnId);
    expect(await speculativeCalls.claim(START, never)).toBeUndefined();
    expect(outcomes).toEqual([how.split(' ')[0]]);
  },
);
