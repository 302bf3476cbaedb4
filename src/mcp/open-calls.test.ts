import { expect, onTestFinished, test, vi } from 'vitest';
import type { Elicitation, ElicitationAnswer } from '../core/records/pending.ts';
import type { CallResponse } from './call-outcome.ts';
import { callInRounds, type RoundsOptions } from './call-rounds.ts';
import { OpenCall, OpenCalls } from './open-calls.ts';

const unaborted = new AbortController().signal;
const formOf = (message: string): Elicitation => ({ mode: 'form', message, requestedSchema: { type: 'object' } });
const yes: ElicitationAnswer = { action: 'accept', content: { name: 'Ann' } };

/** A call whose server asks these questions one after another, and returns the answers. */
function asking(...messages: string[]) {
  return async ({ signal, onQuestion }: Parameters<ConstructorParameters<typeof OpenCall>[0]>[0]) => {
    const answers = [];
    for (const message of messages) {
      const aborted = new Promise<ElicitationAnswer>((_, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason as Error));
      });
      answers.push(await Promise.race([onQuestion(formOf(message)), aborted]));
    }
    return result(JSON.stringify(answers));
  };
}

const result = (text: string): CallResponse => ({
  status: 'result',
  isError: false,
  content: [{ type: 'text', text }],
});
const open = (send: ConstructorParameters<typeof OpenCall>[0], maxQuestions = 8) =>
  new OpenCall(send, { answered: [], maxQuestions });

test('a process keeps 200 calls open; the server of a further one gets a cancellation', async () => {
  const openCalls = new OpenCalls();
  const ids = Array.from({ length: 200 }, () => openCalls.keep(open(asking('?'))));
  expect(ids.every((id) => id !== undefined)).toBe(true);
  expect(openCalls.keep(open(asking('?')))).toBeUndefined();
  const options = { openCalls, measure: <T>(work: () => Promise<T>) => work(), signal: unaborted, mayRepeat: false };
  const send: RoundsOptions['send'] = ({ signal, onQuestion = () => Promise.reject(new Error('no user to ask')) }) =>
    asking('Who?')({ signal, onQuestion });
  const call = () => callInRounds({ ...options, send, resumed: undefined });
  expect(await call()).toEqual(result(JSON.stringify([{ action: 'cancel' }])));
  // An ended call makes room.
  openCalls.take(ids[0] ?? '');
  expect(await call()).toMatchObject({ status: 'asks', question: formOf('Who?') });
});

test.each([
  ['not sent again, as it may have had its effect', false],
  ['sent again, with the answers so far, if it may run twice', true],
])('an answered call that its process does not keep open any more is %s', async (_, mayRepeat) => {
  const send = vi.fn<RoundsOptions['send']>(({ signal, onQuestion = () => Promise.reject(new Error('no user')) }) =>
    asking('Who?', 'Why?')({ signal, onQuestion }),
  );
  const rounds = { by: 'connection' as const, id: 'gone', answered: [{ question: formOf('Who?'), answer: yes }] };
  const resumed = { question: formOf('Why?'), answer: { action: 'decline' as const }, rounds };
  const measure = <T>(work: () => Promise<T>) => work();
  const openCalls = new OpenCalls();
  const outcome = await callInRounds({ openCalls, send, measure, signal: unaborted, mayRepeat, resumed });
  expect(outcome).toEqual(
    mayRepeat
      ? result(JSON.stringify([yes, { action: 'decline' }]))
      : { status: 'unknown', message: expect.stringContaining('kept this call open'), isFinal: true },
  );
  expect(send).toHaveBeenCalledTimes(mayRepeat ? 1 : 0);
});

test('a call that waits for half an hour is aborted, and its process does not keep it any more', async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const openCalls = new OpenCalls();
  const aborted = Promise.withResolvers<unknown>();
  const call = open(({ signal, onQuestion }) => {
    signal.addEventListener('abort', () => aborted.resolve(signal.reason));
    return onQuestion(formOf('?')).then(() => result('never'));
  });
  const id = openCalls.keep(call) ?? '';
  vi.advanceTimersByTime(30 * 60_000);
  expect(await aborted.promise).toMatchObject({ message: 'the user did not answer in time' });
  expect(openCalls.take(id)).toBeUndefined();
});

test('a call that is taken is not aborted later', () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const openCalls = new OpenCalls();
  const call = open(asking('?'));
  const abort = vi.spyOn(call, 'abort');
  expect(openCalls.take(openCalls.keep(call) ?? '')).toBe(call);
  vi.advanceTimersByTime(60 * 60_000);
  expect(abort).not.toHaveBeenCalled();
});

test('questions that arrive at once are asked one by one; those beyond the limit are cancelled', async () => {
  const call = open(async ({ onQuestion }) => {
    const answers = await Promise.all(['One?', 'Two?', 'Three?'].map((message) => onQuestion(formOf(message))));
    return result(JSON.stringify(answers));
  }, 2);
  expect(await call.next(unaborted)).toMatchObject({ question: formOf('One?') });
  call.answer(yes);
  expect(await call.next(unaborted)).toMatchObject({ question: formOf('Two?') });
  call.answer({ action: 'decline' });
  expect(await call.next(unaborted)).toEqual(
    result(JSON.stringify([yes, { action: 'decline' }, { action: 'cancel' }])),
  );
});

test('a repeated call gets the known answers to the same questions, until its server asks another one', async () => {
  const answered = ['One?', 'Two?', 'Three?'].map((message) => ({ question: formOf(message), answer: yes }));
  const call = new OpenCall(asking('One?', 'Other?', 'Three?'), { answered, maxQuestions: 8 });
  expect(await call.next(unaborted)).toMatchObject({ question: formOf('Other?') });
  call.answer({ action: 'decline' });
  expect(await call.next(unaborted)).toMatchObject({ question: formOf('Three?') });
});
