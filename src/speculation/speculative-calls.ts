import { LRUCache } from 'lru-cache';
import type { CallModelInput } from '../core/history.ts';
import type { SpeculativeCall } from '../engine/speculation.ts';
import type { ModelChunk } from '../models/provider.ts';
import { linkSignal, waitOrAbort } from '../lib/abort.ts';
import type { SpeculativeCallOutcome } from '../telemetry/metrics.ts';

/** Calls the model; undefined if the turn's first model call is unknown until its session has accepted the turn. */
export type StartSpeculativeCall = (
  start: SpeculativeCall,
  signal: AbortSignal,
) => Promise<AsyncIterable<ModelChunk> | undefined>;

/**
 * First model calls that are started while their turns are still being sent to Temporal, which hides Temporal's latency
 * behind the model's. An unclaimed call only costs tokens, because a model call has no side effects. The activity that
 * claims a call gets the same answer as from a call of its own.
 */
export interface SpeculativeCalls {
  /** Called once by a worker: starts the calls that are offered, until `stop` is aborted. */
  serve(start: StartSpeculativeCall, stop: AbortSignal): void;
  /** Called by the API: starts the first model call of a turn. Never throws and never waits. */
  offer(call: SpeculativeCall): void;
  /** Ends the call: there will be no such turn, or it has ended. */
  withdraw(turnId: string): void;
  /**
   * Called once by the activity: the answer of the call that was started for its turn, from the first chunk. Undefined if
   * there is none: the activity then calls the model. Aborting `signal` ends the answer.
   */
  claim(
    call: ClaimedCall,
    signal: AbortSignal,
    onUnreported: OnUnreported,
  ): Promise<AsyncIterable<ModelChunk> | undefined>;
  /** Called by an activity that calls the model itself: ends the call that was started, if any. Never waits. */
  forgo(turnId: string, onUnreported: OnUnreported): void;
}

/** Called if the model was called for the turn, and the call was ended before it reported its usage. */
export type OnUnreported = () => void;

export type ClaimedCall = Pick<CallModelInput, 'turnId' | 'previousTurnId' | 'sequence' | 'specHash'>;

/** A turn that has not claimed its call after this time was rejected, or runs on another worker. */
const UNCLAIMED_MS = 30_000;

/** A call is offered, claimed and withdrawn within this time. */
const REMEMBERED_MS = 60_000;

const MAX_REMEMBERED = 10_000;

interface StartedCall extends SpeculativeCall {
  controller: AbortController;
  /** Whether the request was sent to the model. */
  isSent: boolean;
  answer: Promise<AsyncIterable<ModelChunk> | undefined>;
  expiry: NodeJS.Timeout;
}

/** The speculative calls of a server whose API and worker share a process. */
export class InProcessSpeculativeCalls implements SpeculativeCalls {
  readonly #started = new Map<string, StartedCall>();
  /** Turns that have claimed their calls: a later offer is ignored. */
  readonly #claimed = new LRUCache<string, true>({ max: MAX_REMEMBERED, ttl: REMEMBERED_MS });
  /** Turns whose calls were sent to the model, and ended before the turns claimed them. */
  readonly #unreported = new LRUCache<string, true>({ max: MAX_REMEMBERED, ttl: REMEMBERED_MS });
  readonly #onEnd: (outcome: SpeculativeCallOutcome) => void;
  #start: StartSpeculativeCall | undefined;

  constructor(onEnd: (outcome: SpeculativeCallOutcome) => void = () => undefined) {
    this.#onEnd = onEnd;
  }

  serve(start: StartSpeculativeCall, stop: AbortSignal): void {
    this.#start = start;
    stop.addEventListener('abort', () => {
      this.#start = undefined;
      for (const turnId of this.#started.keys()) this.withdraw(turnId);
    });
  }

  offer(call: SpeculativeCall): void {
    const { turnId } = call;
    if (!this.#start || this.#claimed.has(turnId)) return;
    const controller = new AbortController();
    const answer = this.#start(call, controller.signal).then((chunks) => {
      started.isSent = chunks !== undefined;
      return chunks && readAhead(chunks);
    });
    // The activity calls the model itself then, and reports what is wrong.
    answer.catch(() => this.#end(turnId, 'failed'));
    const expiry = setTimeout(() => this.#end(turnId, 'expired'), UNCLAIMED_MS).unref();
    const started: StartedCall = { ...call, controller, isSent: false, answer, expiry };
    this.#started.set(turnId, started);
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
    const started = this.#take(turnId);
    if (!started) {
      if (this.#unreported.delete(turnId)) onUnreported();
      return undefined;
    }
    // Another turn may have been accepted first, or the agent of a draft may have changed.
    if (
      started.previousTurnId !== call.previousTurnId ||
      started.sequence !== call.sequence ||
      started.specHash !== call.specHash
    ) {
      started.controller.abort();
      this.#onEnd('mismatched');
      if (started.isSent) onUnreported();
      return undefined;
    }
    this.#onEnd('claimed');
    const release = linkSignal(signal, started.controller);
    const answer = await waitOrAbort(
      started.answer.catch(() => undefined),
      signal,
    );
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
    const started = this.#take(turnId);
    if (!started) return;
    started.controller.abort();
    if (started.isSent) this.#unreported.set(turnId, true);
    this.#onEnd(outcome);
  }

  #take(turnId: string): StartedCall | undefined {
    const started = this.#started.get(turnId);
    clearTimeout(started?.expiry);
    this.#started.delete(turnId);
    return started;
  }
}

/**
 * Calls `release` when the answer has ended or is no longer read. A listener that stays on the caller's signal would keep
 * the model call and its transcript in memory for as long as the signals that it is composed of: the worker's lifetime.
 */
async function* releasing(answer: AsyncIterable<ModelChunk>, release: () => void): AsyncGenerator<ModelChunk> {
  try {
    yield* answer;
  } finally {
    release();
  }
}

/** Reads a model's answer as it arrives, independently of its consumer. */
function readAhead(chunks: AsyncIterable<ModelChunk>): AsyncIterable<ModelChunk> {
  // An error is enqueued, because a failed stream drops its queue, and the chunks before the failure are used.
  const queue = new ReadableStream<{ chunk: ModelChunk } | { error: unknown }>({
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
    for await (const part of queue) {
      if ('error' in part) throw part.error;
      yield part.chunk;
    }
  })();
}
