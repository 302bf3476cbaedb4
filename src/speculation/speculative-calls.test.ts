import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { SpeculativeCall } from '../engine/speculation.ts';
import type { ModelChunk } from '../models/provider.ts';
import {
  InProcessSpeculativeCalls,
  type StartSpeculativeCall,
  type SpeculativeCallOutcome,
} from './speculative-calls.ts';

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

let speculativeCalls: InProcessSpeculativeCalls;
let outcomes: SpeculativeCallOutcome[];
let unreported: number;
const onUnreported = (): void => void unreported++;
const stop = new AbortController();
const never = new AbortController().signal;
beforeEach(() => {
  outcomes = [];
  unreported = 0;
  speculativeCalls = new InProcessSpeculativeCalls((outcome) => void outcomes.push(outcome));
});
afterEach(() => void vi.useRealTimers());

/** A model that says these words and then, if it is to, waits for the end of the call. */
function model(words: string[], ends = true): { begin: StartSpeculativeCall; signal: () => AbortSignal | undefined } {
  let given: AbortSignal | undefined;
  async function* chunks(signal: AbortSignal): AsyncGenerator<ModelChunk> {
    for (const content of words) yield { content };
    if (!ends) await new Promise((resolve) => void signal.addEventListener('abort', resolve));
  }
  return {
    begin: (_start, signal) => {
      given = signal;
      return Promise.resolve(chunks(signal));
    },
    signal: () => given,
  };
}

/** Settles when the models of all turns that were offered have been asked. */
async function begun(): Promise<void> {
  await new Promise((resolve) => void setImmediate(resolve));
}

async function textOf(chunks: AsyncIterable<ModelChunk> | undefined): Promise<string | undefined> {
  if (!chunks) return undefined;
  let text = '';
  for await (const { content = '' } of chunks) text += content;
  return text;
}

test('an answer is claimed once, with all that was said before', async () => {
  speculativeCalls.serve(model(['a', 'b', 'c']).begin, stop.signal);
  speculativeCalls.offer(START);
  await begun();
  expect(await textOf(await speculativeCalls.claim(START, never, onUnreported))).toBe('abc');
  expect(await speculativeCalls.claim(START, never, onUnreported)).toBeUndefined();
  expect(outcomes).toEqual(['claimed']);
  expect(unreported).toBe(0);
});

test('an offer that comes after its claim begins nothing', async () => {
  const { begin, signal } = model(['a']);
  speculativeCalls.serve(begin, stop.signal);
  expect(await speculativeCalls.claim(START, never, onUnreported)).toBeUndefined();
  speculativeCalls.offer(START);
  expect(signal()).toBeUndefined();
});

test.each([{ previousTurnId: 'turn_x' }, { previousTurnId: null }, { sequence: 3 }, { specHash: 'other' }])(
  'an answer to something else (%j) is ended, not claimed',
  async (other) => {
    const { begin, signal } = model(['a'], false);
    speculativeCalls.serve(begin, stop.signal);
    speculativeCalls.offer(START);
    await begun();
    expect(await speculativeCalls.claim({ ...START, ...other }, never, onUnreported)).toBeUndefined();
    expect(outcomes).toEqual(['mismatched']);
    expect(unreported).toBe(1);
    expect(signal()?.aborted).toBe(true);
  },
);

test('a turn that was withdrawn has no answer, and its call is ended', async () => {
  const { begin, signal } = model(['a'], false);
  speculativeCalls.serve(begin, stop.signal);
  speculativeCalls.offer(START);
  speculativeCalls.withdraw(START.turnId);
  expect(signal()?.aborted).toBe(true);
  expect(outcomes).toEqual(['withdrawn']);
  expect(await speculativeCalls.claim(START, never, onUnreported)).toBeUndefined();
});

test('an answer that nobody claims is ended after a while; one that was claimed goes on', async () => {
  vi.useFakeTimers();
  const calls: AbortSignal[] = [];
  const { begin } = model(['a'], false);
  speculativeCalls.serve((start, signal) => {
    calls.push(signal);
    return begin(start, signal);
  }, stop.signal);
  speculativeCalls.offer(START);
  speculativeCalls.offer({ ...START, turnId: 'turn_2' });
  await speculativeCalls.claim(START, never, onUnreported);
  vi.advanceTimersByTime(60_000);
  expect(calls.map(({ aborted }) => aborted)).toEqual([false, true]);
  expect(outcomes).toEqual(['claimed', 'expired']);
});

test('whoever has claimed an answer can end it', async () => {
  const { begin, signal } = model(['a'], false);
  const caller = new AbortController();
  speculativeCalls.serve(begin, stop.signal);
  speculativeCalls.offer(START);
  const chunks = await speculativeCalls.claim(START, caller.signal, onUnreported);
  caller.abort();
  expect(await textOf(chunks)).toBe('a');
  expect(signal()?.aborted).toBe(true);
});

test('nothing of a claimed answer hangs on its caller when it has ended, or could not be begun', async () => {
  const caller = new AbortController().signal;
  const listeners = (): number => getEventListeners(caller, 'abort').length;
  speculativeCalls.serve(model(['a', 'b']).begin, stop.signal);
  speculativeCalls.offer(START);
  const chunks = await speculativeCalls.claim(START, caller, onUnreported);
  expect(listeners()).toBe(1);
  expect(await textOf(chunks)).toBe('ab');
  expect(listeners()).toBe(0);

  speculativeCalls.serve(() => Promise.reject(new Error('no catalog')), stop.signal);
  const next = { ...START, turnId: 'turn_2' };
  speculativeCalls.offer(next);
  expect(await speculativeCalls.claim(next, caller, onUnreported)).toBeUndefined();
  expect(listeners()).toBe(0);
});

test('a call that could not be begun is no answer; one that fails later fails for whoever claims it', async () => {
  speculativeCalls.serve(() => Promise.reject(new Error('no catalog')), stop.signal);
  speculativeCalls.offer(START);
  expect(await speculativeCalls.claim(START, never, onUnreported)).toBeUndefined();

  async function* broken(): AsyncGenerator<ModelChunk> {
    yield { content: 'a' };
    throw new Error('cut off');
  }
  speculativeCalls.serve(() => Promise.resolve(broken()), stop.signal);
  const next = { ...START, turnId: 'turn_2' };
  speculativeCalls.offer(next);
  await begun();
  const chunks = await speculativeCalls.claim(next, never, onUnreported);
  const heard: ModelChunk[] = [];
  await expect(
    (async () => {
      for await (const chunk of chunks ?? []) heard.push(chunk);
    })(),
  ).rejects.toThrow('cut off');
  expect(heard).toEqual([{ content: 'a' }]);
});

test('a worker that stops ends what nobody has claimed, and begins nothing more', async () => {
  const { begin, signal } = model(['a'], false);
  const draining = new AbortController();
  speculativeCalls.serve(begin, draining.signal);
  speculativeCalls.offer(START);
  draining.abort();
  expect(signal()?.aborted).toBe(true);
  speculativeCalls.offer({ ...START, turnId: 'turn_2' });
  expect(await speculativeCalls.claim({ ...START, turnId: 'turn_2' }, never, onUnreported)).toBeUndefined();
});

test('an activity that asks the model itself ends the call that was begun, counts it once, and leaves nothing to begin', async () => {
  const { begin, signal } = model(['a'], false);
  speculativeCalls.serve(begin, stop.signal);
  speculativeCalls.offer(START);
  await begun();
  speculativeCalls.forgo(START.turnId, onUnreported);
  expect(signal()?.aborted).toBe(true);
  expect(outcomes).toEqual(['withdrawn']);
  speculativeCalls.forgo(START.turnId, onUnreported);
  expect(unreported).toBe(1);

  speculativeCalls.forgo('turn_2', onUnreported);
  speculativeCalls.offer({ ...START, turnId: 'turn_2' });
  expect(await speculativeCalls.claim({ ...START, turnId: 'turn_2' }, never, onUnreported)).toBeUndefined();
  expect(unreported).toBe(1);
});

test.each(['withdrawn', 'expired', 'withdrawn before the model was asked', 'failed'])(
  'a claim of what was %s is told whether the model was asked',
  async (how) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const answers: Record<string, StartSpeculativeCall> = {
      failed: () => Promise.reject(new Error('no catalog')),
      'withdrawn before the model was asked': () => new Promise(() => undefined),
    };
    speculativeCalls.serve(answers[how] ?? model(['a'], false).begin, stop.signal);
    speculativeCalls.offer(START);
    await begun();
    if (how === 'expired') vi.advanceTimersByTime(30_000);
    else speculativeCalls.withdraw(START.turnId);
    expect(await speculativeCalls.claim(START, never, onUnreported)).toBeUndefined();
    expect(outcomes).toEqual([how.split(' ')[0]]);
    expect(unreported).toBe(how in answers ? 0 : 1);
  },
);
