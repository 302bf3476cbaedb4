import { LRUCache } from 'lru-cache';
import type { CallModelInput } from '../core/history.ts';
import type { SpeculativeCall } from '../engine/speculation.ts';
import type { ModelChunk } from '../models/provider.ts';
import { waitOrAbort } from '../lib/abort.ts';

/** Asks the model; undefined if this turn's first model call can't be known before its session has answered. */
export type StartSpeculativeCall = (
  start: SpeculativeCall,
  signal: AbortSignal,
) => Promise<AsyncIterable<ModelChunk> | undefined>;

/**
 * First model calls that are begun while their turns are still on the way to Temporal, so that the model thinks in the
 * meantime. A call that nobody claims was for nothing, and does no harm: models have no effects. Whoever claims one gets
 * what it would have got by asking itself.
 */
export interface SpeculativeCalls {
  /** From a worker, once: gives speculative calls from now on, until the signal is aborted. */
  serve(begin: StartSpeculativeCall, stop: AbortSignal): void;
  /** From the API: begins the first model call of a turn. Never throws and never waits. */
  offer(start: SpeculativeCall): void;
  /** There will be no such turn, or it has ended. */
  withdraw(turnId: string): void;
  /**
   * To the activity, once: the answer that was begun for this very call, from its first chunk on. Undefined if there is
   * none: then the model has to be asked. Aborting `signal` ends the answer.
   */
  claim(
    call: ClaimedCall,
    signal: AbortSignal,
    onUnreported: OnUnreported,
  ): Promise<AsyncIterable<ModelChunk> | undefined>;
  /** From an activity that does not claim the answer, since it asks the model itself: ends what was begun. Never waits. */
  forgo(turnId: string, onUnreported: OnUnreported): void;
}

/** The model was asked for the turn, in a call that was ended before it could say what it has cost. */
export type OnUnreported = () => void;

export type ClaimedCall = Pick<CallModelInput, 'turnId' | 'previousTurnId' | 'sequence' | 'specHash'>;

/** A turn that has not come by then was refused, or runs on another worker. */
const UNCLAIMED_MS = 30_000;

/** Whoever is to have a speculative call has it by then, or never. */
const REMEMBERED_MS = 60_000;

const MAX_REMEMBERED = 10_000;

/** What became of a model call that was begun: all but the first were for nothing, and may have cost something. */
export const SPECULATIVE_CALL_OUTCOMES = ['claimed', 'withdrawn', 'mismatched', 'expired', 'failed'] as const;

export type SpeculativeCallOutcome = (typeof SPECULATIVE_CALL_OUTCOMES)[number];

interface Begun extends SpeculativeCall {
  controller: AbortController;
  /** Whether the request has gone to the model. */
  wasAsked: boolean;
  answer: Promise<AsyncIterable<ModelChunk> | undefined>;
  expiry: NodeJS.Timeout;
}

/** The speculative calls of a server whose API and worker share a process. */
export class InProcessSpeculativeCalls implements SpeculativeCalls {
  readonly #begun = new Map<string, Begun>();
  /** Turns that have asked for their answers: an offer that comes later would be for nobody. */
  readonly #claimed = new LRUCache<string, true>({ max: MAX_REMEMBERED, ttl: REMEMBERED_MS });
  /** Turns whose models were asked in calls that were ended before the turns asked for them. */
  readonly #unreported = new LRUCache<string, true>({ max: MAX_REMEMBERED, ttl: REMEMBERED_MS });
  readonly #onEnd: (outcome: SpeculativeCallOutcome) => void;
  #begin: StartSpeculativeCall | undefined;

  constructor(onEnd: (outcome: SpeculativeCallOutcome) => void = () => undefined) {
    this.#onEnd = onEnd;
  }

  serve(begin: StartSpeculativeCall, stop: AbortSignal): void {
    this.#begin = begin;
    stop.addEventListener('abort', () => {
      this.#begin = undefined;
      for (const turnId of this.#begun.keys()) this.withdraw(turnId);
    });
  }

  offer(start: SpeculativeCall): void {
    if (!this.#begin || this.#claimed.has(start.turnId)) return;
    const controller = new AbortController();
    const answer = this.#begin(start, controller.signal).then((chunks) => {
      begun.wasAsked = chunks !== undefined;
      return chunks && readAhead(chunks);
    });
    // Whoever claims it asks the model itself then, and meets what was wrong.
    answer.catch(() => this.#end(start.turnId, 'failed'));
    const expiry = setTimeout(() => this.#end(start.turnId, 'expired'), UNCLAIMED_MS).unref();
    const begun: Begun = { ...start, controller, wasAsked: false, answer, expiry };
    this.#begun.set(start.turnId, begun);
  }

  withdraw(turnId: string): void {
    this.#end(turnId, 'withdrawn');
  }

  async claim(
    { turnId, ...call }: ClaimedCall,
    signal: AbortSignal,
    onUnreported: OnUnreported,
  ): Promise<AsyncIterable<ModelChunk> | undefined> {
    this.#claimed.set(turnId, true);
    const begun = this.#take(turnId);
    if (!begun) {
      if (this.#unreported.delete(turnId)) onUnreported();
      return undefined;
    }
    // Another turn may have come in between, or the agent of a draft may have changed.
    if (
      begun.previousTurnId !== call.previousTurnId ||
      begun.sequence !== call.sequence ||
      begun.specHash !== call.specHash
    ) {
      begun.controller.abort();
      this.#onEnd('mismatched');
      if (begun.wasAsked) onUnreported();
      return undefined;
    }
    this.#onEnd('claimed');
    const stop = (): void => begun.controller.abort();
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    const answer = await waitOrAbort(
      begun.answer.catch(() => undefined),
      signal,
    );
    const release = (): void => signal.removeEventListener('abort', stop);
    if (answer) return releasing(answer, release);
    release();
    return undefined;
  }

  forgo(turnId: string, onUnreported: OnUnreported): void {
    this.#claimed.set(turnId, true);
    this.#end(turnId, 'withdrawn');
    if (this.#unreported.delete(turnId)) onUnreported();
  }

  #end(turnId: string, outcome: SpeculativeCallOutcome): void {
    const begun = this.#take(turnId);
    if (!begun) return;
    begun.controller.abort();
    if (begun.wasAsked) this.#unreported.set(turnId, true);
    this.#onEnd(outcome);
  }

  #take(turnId: string): Begun | undefined {
    const begun = this.#begun.get(turnId);
    clearTimeout(begun?.expiry);
    this.#begun.delete(turnId);
    return begun;
  }
}

/**
 * Calls `release` when the answer has ended or is not read any more. A listener that is left on a caller's signal keeps
 * the whole model call, transcript and all, for as long as the signals live that it is made of: as long as the worker.
 */
async function* releasing(answer: AsyncIterable<ModelChunk>, release: () => void): AsyncGenerator<ModelChunk> {
  try {
    yield* answer;
  } finally {
    release();
  }
}

/** Reads a model's answer as it comes, whether anybody takes it or not. */
function readAhead(chunks: AsyncIterable<ModelChunk>): AsyncIterable<ModelChunk> {
  // A stream that fails forgets what it holds; what a model has said before it failed was paid for.
  const kept = new ReadableStream<{ chunk: ModelChunk } | { error: unknown }>({
    async start(controller) {
      try {
        for await (const chunk of chunks) controller.enqueue({ chunk });
      } catch (error) {
        controller.enqueue({ error });
      }
      controller.close();
    },
  });
  return (async function* () {
    for await (const part of kept) {
      if ('error' in part) throw part.error;
      yield part.chunk;
    }
  })();
}
