import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { Elicitation, ElicitationAnswer } from '../core/records/pending.ts';
import { linkSignal } from '../lib/abort.ts';
import type { CallResponse } from './call-outcome.ts';
import type { CallOptions } from './connection.ts';

export interface AnsweredQuestion {
  question: Elicitation;
  answer: ElicitationAnswer;
}

type Send = (options: Required<Pick<CallOptions, 'signal' | 'onQuestion'>>) => Promise<CallResponse>;

/**
 * A call in progress, whose server may ask the user on the open connection. `OpenCalls` aborts a call that outlives its
 * activity.
 */
export class OpenCall {
  /** The questions so far, in order. */
  readonly answered: AnsweredQuestion[] = [];
  readonly #known: AnsweredQuestion[];
  readonly #maxQuestions: number;
  readonly #controller = new AbortController();
  readonly #ended: Promise<CallResponse>;
  #asked = Promise.withResolvers<Elicitation>();
  #reply: ((answer: ElicitationAnswer) => void) | undefined;
  /** Questions that wait for an answer, and the last one of them. */
  #open = 0;
  #last: Promise<unknown> = Promise.resolve();

  /** `answered`: the questions of an earlier attempt. The same questions in the same order get the same answers. */
  constructor(send: Send, { answered, maxQuestions }: { answered: AnsweredQuestion[]; maxQuestions: number }) {
    this.#known = [...answered];
    this.#maxQuestions = maxQuestions;
    this.#ended = send({ signal: this.#controller.signal, onQuestion: (question) => this.#ask(question) });
    // A question without an answer would be kept for as long as its connection.
    void this.#ended.then(() => this.#reply?.({ action: 'cancel' }));
  }

  /** Waits until the call ends or asks the user. A call is aborted with the signal. Never throws. */
  async next(signal: AbortSignal): Promise<CallResponse | { status: 'asks'; question: Elicitation }> {
    const unlink = linkSignal(signal, this.#controller);
    try {
      const asked = this.#asked.promise.then((question) => ({ status: 'asks' as const, question }));
      return await Promise.race([this.#ended, asked]);
    } finally {
      unlink();
    }
  }

  /** Answers the question that `next` has returned. */
  answer(answer: ElicitationAnswer): void {
    this.#asked = Promise.withResolvers();
    this.#reply?.(answer);
  }

  abort(): void {
    this.#controller.abort(new Error('the user did not answer in time'));
  }

  /** One question at a time: a server may send several at once. */
  #ask(question: Elicitation): Promise<ElicitationAnswer> {
    if (this.answered.length + this.#open >= this.#maxQuestions) return Promise.resolve({ action: 'cancel' });
    this.#open += 1;
    const answer = this.#last.then(() => this.#askNow(question));
    this.#last = answer;
    return answer;
  }

  async #askNow(question: Elicitation): Promise<ElicitationAnswer> {
    const known = this.#known.shift();
    const isKnown = known && isDeepStrictEqual(known.question, question);
    if (!isKnown) this.#known.length = 0;
    const answer = isKnown ? known.answer : await this.#askUser(question);
    this.answered.push({ question, answer });
    this.#open -= 1;
    return answer;
  }

  #askUser(question: Elicitation): Promise<ElicitationAnswer> {
    const { promise, resolve } = Promise.withResolvers<ElicitationAnswer>();
    this.#reply = resolve;
    this.#asked.resolve(question);
    return promise;
  }
}

/** A call occupies a connection, and memory of its server. */
const MAX_CALLS = 200;

/** How long a call waits for the user. Most servers end such a call earlier. */
const MAX_WAIT_MS = 30 * 60_000;

/** The calls of this process that wait for the user on an open connection. */
export class OpenCalls {
  readonly #calls = new Map<string, { call: OpenCall; timer: NodeJS.Timeout }>();

  /** Keeps a call until its answer arrives, and aborts it after half an hour. Undefined if too many wait. */
  keep(call: OpenCall): string | undefined {
    if (this.#calls.size >= MAX_CALLS) return undefined;
    const id = randomUUID();
    const timer = setTimeout(() => this.take(id)?.abort(), MAX_WAIT_MS).unref();
    this.#calls.set(id, { call, timer });
    return id;
  }

  /** The call, if this process keeps it. */
  take(id: string): OpenCall | undefined {
    const kept = this.#calls.get(id);
    clearTimeout(kept?.timer);
    this.#calls.delete(id);
    return kept?.call;
  }
}
