import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { ModelChunk } from '../models/provider.ts';
import { InProcessHeadStarts, type BeginModelCall, type HeadStart, type HeadStartOutcome } from './head-starts.ts';

const START: HeadStart = {
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

let headStarts: InProcessHeadStarts;
let outcomes: HeadStartOutcome[];
const stop = new AbortController();
const never = new AbortController().signal;
beforeEach(() => {
  outcomes = [];
  headStarts = new InProcessHeadStarts((outcome) => void outcomes.push(outcome));
});
afterEach(() => void vi.useRealTimers());

/** A model that says these words and then, if it is to, waits for the end of the call. */
function model(words: string[], ends = true): { begin: BeginModelCall; signal: () => AbortSignal | undefined } {
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

async function textOf(chunks: AsyncIterable<ModelChunk> | undefined): Promise<string | undefined> {
  if (!chunks) return undefined;
  let text = '';
  for await (const { content = '' } of chunks) text += content;
  return text;
}

test('an answer is claimed once, with all that was said before', async () => {
  headStarts.serve(model(['a', 'b', 'c']).begin, stop.signal);
  headStarts.offer(START);
  await new Promise((resolve) => void setImmediate(resolve));
  expect(await textOf(await headStarts.claim(START, never))).toBe('abc');
  expect(await headStarts.claim(START, never)).toBeUndefined();
  expect(outcomes).toEqual(['claimed']);
});

test('an offer that comes after its claim begins nothing', async () => {
  const { begin, signal } = model(['a']);
  headStarts.serve(begin, stop.signal);
  expect(await headStarts.claim(START, never)).toBeUndefined();
  headStarts.offer(START);
  expect(signal()).toBeUndefined();
});

test.each([{ previousTurnId: 'turn_x' }, { previousTurnId: null }, { sequence: 3 }, { specHash: 'other' }])(
  'an answer to something else (%j) is ended, not claimed',
  async (other) => {
    const { begin, signal } = model(['a'], false);
    headStarts.serve(begin, stop.signal);
    headStarts.offer(START);
    expect(await headStarts.claim({ ...START, ...other }, never)).toBeUndefined();
    expect(outcomes).toEqual(['mismatched']);
    expect(signal()?.aborted).toBe(true);
  },
);

test('a turn that was withdrawn has no answer, and its call is ended', async () => {
  const { begin, signal } = model(['a'], false);
  headStarts.serve(begin, stop.signal);
  headStarts.offer(START);
  headStarts.withdraw(START.turnId);
  expect(signal()?.aborted).toBe(true);
  expect(outcomes).toEqual(['withdrawn']);
  expect(await headStarts.claim(START, never)).toBeUndefined();
});

test('an answer that nobody claims is ended after a while; one that was claimed goes on', async () => {
  vi.useFakeTimers();
  const calls: AbortSignal[] = [];
  const { begin } = model(['a'], false);
  headStarts.serve((start, signal) => {
    calls.push(signal);
    return begin(start, signal);
  }, stop.signal);
  headStarts.offer(START);
  headStarts.offer({ ...START, turnId: 'turn_2' });
  await headStarts.claim(START, never);
  vi.advanceTimersByTime(60_000);
  expect(calls.map(({ aborted }) => aborted)).toEqual([false, true]);
  expect(outcomes).toEqual(['claimed', 'expired']);
});

test('whoever has claimed an answer can end it', async () => {
  const { begin, signal } = model(['a'], false);
  const caller = new AbortController();
  headStarts.serve(begin, stop.signal);
  headStarts.offer(START);
  const chunks = await headStarts.claim(START, caller.signal);
  caller.abort();
  expect(await textOf(chunks)).toBe('a');
  expect(signal()?.aborted).toBe(true);
});

test('nothing of a claimed answer hangs on its caller when it has ended, or could not be begun', async () => {
  const caller = new AbortController().signal;
  const listeners = (): number => getEventListeners(caller, 'abort').length;
  headStarts.serve(model(['a', 'b']).begin, stop.signal);
  headStarts.offer(START);
  const chunks = await headStarts.claim(START, caller);
  expect(listeners()).toBe(1);
  expect(await textOf(chunks)).toBe('ab');
  expect(listeners()).toBe(0);

  headStarts.serve(() => Promise.reject(new Error('no catalog')), stop.signal);
  const next = { ...START, turnId: 'turn_2' };
  headStarts.offer(next);
  expect(await headStarts.claim(next, caller)).toBeUndefined();
  expect(listeners()).toBe(0);
});

test('a call that could not be begun is no answer; one that fails later fails for whoever claims it', async () => {
  headStarts.serve(() => Promise.reject(new Error('no catalog')), stop.signal);
  headStarts.offer(START);
  expect(await headStarts.claim(START, never)).toBeUndefined();

  async function* broken(): AsyncGenerator<ModelChunk> {
    yield { content: 'a' };
    throw new Error('cut off');
  }
  headStarts.serve(() => Promise.resolve(broken()), stop.signal);
  const next = { ...START, turnId: 'turn_2' };
  headStarts.offer(next);
  await new Promise((resolve) => void setImmediate(resolve));
  const chunks = await headStarts.claim(next, never);
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
  headStarts.serve(begin, draining.signal);
  headStarts.offer(START);
  draining.abort();
  expect(signal()?.aborted).toBe(true);
  headStarts.offer({ ...START, turnId: 'turn_2' });
  expect(await headStarts.claim({ ...START, turnId: 'turn_2' }, never)).toBeUndefined();
});
