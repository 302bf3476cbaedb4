import { setTimeout as sleep } from 'node:timers/promises';
import type { Elicitation, ElicitationAnswer } from '../core/records/pending.ts';
import { backoffMs } from '../lib/backoff.ts';
import type { CallResponse, CallOutcome } from './call-outcome.ts';
import type { CallOptions } from './connection.ts';
import { OpenCall, type AnsweredQuestion, type OpenCalls } from './open-calls.ts';

/** How often one call may ask the user. */
const MAX_QUESTIONS = 8;

/** How often a server may respond that it has to be called again without an answer of the user. */
const MAX_REPEATS = 8;
const FIRST_REPEAT_MS = 250;

/** Waits before a call that did not reach its server is retried; the pool remembers a failed connect for 1 s or more. */
const UNREACHED_WAITS_MS = [1_500, 4_000];

/** The state in which a call that waits for the user continues, in the order of the two protocols. */
export type CallRounds =
  /**
   * Since 2026-07-28 the server has ended the request, and gets the answers to all of its questions in another one.
   * The user answers the questions one by one; the first open one waits.
   */
  | {
      by: 'request';
      asked: number;
      open: [key: string, question: Elicitation][];
      answers: Record<string, ElicitationAnswer>;
      requestState?: string;
      /** See `InputRequest`. */
      isPrecondition?: true;
    }
  /** Before that, the request stays open in the process that sent it. `answered` is for a repetition of the call. */
  | { by: 'connection'; id: string; answered: AnsweredQuestion[] };

/** A call that waits for the user's answer to `question`. */
export interface AskingCall {
  status: 'asks';
  question: Elicitation;
  rounds: CallRounds;
}

export interface RoundsOptions {
  openCalls: OpenCalls;
  send: (options: Pick<CallOptions, 'signal' | 'onQuestion' | 'input'>) => Promise<CallResponse>;
  /** Measures the part of a call between two questions. */
  measure: <T extends CallResponse | { status: 'asks' }>(work: () => Promise<T>) => Promise<T>;
  signal: AbortSignal;
  /** Whether the call may be sent again if the process that kept it open is gone. */
  mayRepeat: boolean;
  resumed: ResumedCall | undefined;
}

/** A call that continues with the user's answer. */
export interface ResumedCall extends AnsweredQuestion {
  rounds: CallRounds;
}

/** Calls a tool, or continues its call, until it has ended or asks the user. Never throws. */
export async function callInRounds(options: RoundsOptions): Promise<CallOutcome | AskingCall> {
  const { openCalls, send, measure, signal, mayRepeat, resumed } = options;
  const { rounds, answer } = resumed ?? {};
  let call: OpenCall | undefined;
  let input: CallOptions['input'];
  let asked = 0;
  let answered: AnsweredQuestion[] = [];
  if (rounds?.by === 'request' && answer) {
    const [[key] = [''], ...open] = rounds.open;
    const answers = { ...rounds.answers, [key]: answer };
    const [next] = open;
    if (next) return { status: 'asks', question: next[1], rounds: { ...rounds, open, answers } };
    asked = rounds.asked;
    if (rounds.isPrecondition) {
      const isMet = Object.values(answers).every(({ action }) => action === 'accept');
      if (!isMet) return { status: 'rejected', message: 'requires a page to be visited, which the user has not done' };
    } else input = { answers, ...(rounds.requestState !== undefined && { requestState: rounds.requestState }) };
  } else if (rounds?.by === 'connection' && resumed) {
    answered = [...rounds.answered, { question: resumed.question, answer: resumed.answer }];
    call = openCalls.take(rounds.id);
    if (!call && !mayRepeat) return { status: 'unknown', message: ENDED, isFinal: true };
    call?.answer(resumed.answer);
  }
  for (let repeats = 0, unreached = 0; ;) {
    const end = await measure(() => {
      call ??= new OpenCall((more) => send({ ...more, ...(input && { input }) }), {
        answered,
        maxQuestions: MAX_QUESTIONS,
      });
      return call.next(signal);
    });
    if (end.status === 'asks') {
      const id = call && openCalls.keep(call);
      if (call && id !== undefined) {
        return { ...end, rounds: { by: 'connection', id, answered: call.answered } };
      }
      call?.answer({ action: 'cancel' });
      continue;
    }
    call = undefined;
    if (end.status === 'not_sent' && unreached < UNREACHED_WAITS_MS.length && !signal.aborted) {
      await pause(UNREACHED_WAITS_MS[unreached++] ?? 0, signal);
      continue;
    }
    if (end.status !== 'input_required') return end;
    const { questions: open, requestState, isPrecondition } = end.request;
    const [first] = open;
    asked += open.length;
    if (asked > MAX_QUESTIONS)
      return { status: 'rejected', message: `asked the user more than ${MAX_QUESTIONS} times` };
    const state = requestState === undefined ? {} : { requestState };
    if (first) {
      const rounds = { by: 'request' as const, asked, open, answers: {}, ...state };
      return { status: 'asks', question: first[1], rounds: { ...rounds, ...(isPrecondition && { isPrecondition }) } };
    }
    repeats += 1;
    if (repeats > MAX_REPEATS) return { status: 'rejected', message: `had no result after ${MAX_REPEATS} repetitions` };
    input = { answers: {}, ...state };
    await pause(backoffMs(repeats, { first: FIRST_REPEAT_MS }), signal);
  }
}

const ENDED = 'the process that kept this call open has ended, or did not get the answer in time';

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => undefined);
}
