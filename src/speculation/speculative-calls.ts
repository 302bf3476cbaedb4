import { LRUCache } from 'lru-cache';
import type { MessageAssembler } from '../agents/message-assembler.ts';
import type { CallModelInput } from '../core/history.ts';
import type { TurnAccepted } from '../core/session.ts';
import type { SpeculativeCall } from '../engine/speculation.ts';
import type { ModelChunk } from '../models/provider.ts';
import { linkSignal, onAbort, waitOrAbort } from '../lib/abort.ts';
import type { SpeculativeCallOutcome } from '../telemetry/metrics.ts';
import { chunksOf, type Part } from './read-ahead.ts';

/** Calls the model; undefined if the turn's first model call is unknown until its session has accepted the turn. */
export type StartSpeculativeCall = (start: SpeculativeCall, signal: AbortSignal) => Promise<BegunCall | undefined>;

export interface BegunCall {
  /** Attempt 0 at the turn's first message: it is not published yet. */
  message: MessageAssembler;
  parts: ReadableStream<Part>;
}

/**
 * First model calls that are started while their turns are still being sent to Temporal, which hides Temporal's latency
 * behind the model's. An unclaimed call only costs tokens, because a model call has no side effects.
 *
 * A call's message is published as attempt 0 as soon as the turn is accepted: a rejected turn has shown nothing. The
 * activity that claims the call on the same worker continues that message. Anywhere else its attempt replaces it.
 */
export interface SpeculativeCalls {
  /** Called once by a worker: starts the calls that are offered, until `stop` is aborted. */
  serve(start: StartSpeculativeCall, stop: AbortSignal): void;
  /** Called by the API: starts the first model call of a turn. Never throws and never waits. */
  offer(call: SpeculativeCall): void;
  /** Called by the API when the turn is accepted: publishes the message of the call, if it is the turn's. Never waits. */
  accept(turn: TurnAccepted): void;
  /** Ends the call: there will be no such turn, or it has ended. */
  withdraw(turnId: string): void;
  /**
   * Called once by the activity: the message of the call that this process has started for its turn. The activity
   * finishes it. Undefined if there is none. Aborting `signal` ends the call.
   */
  claim(call: ClaimedCall, signal: AbortSignal, onUnreported: OnUnreported): Promise<ClaimedMessage | undefined>;
  /**
   * Called once by the activity, if it has claimed none here: the answer of the call that another worker has started,
   * from the first chunk. Undefined if there is none: the activity then calls the model.
   */
  claimElsewhere(
    call: ClaimedCall,
    signal: AbortSignal,
    onUnreported: OnUnreported,
  ): Promise<AsyncIterable<ModelChunk> | undefined>;
  /** Called by an activity that calls the model itself: ends the call that was started, if any. Never waits. */
  forgo(turnId: string, onUnreported: OnUnreported): void;
}

/** Called if the model was called for the turn, and the call was ended before it reported its usage. */
export type OnUnreported = () => void;

export interface ClaimedMessage {
  message: MessageAssembler;
  /** Settles when the message is complete. Rejects with the failure of the model. */
  ended: Promise<void>;
}

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
  answer: Promise<Answer | undefined>;
  expiry: NodeJS.Timeout;
}

interface Answer extends ClaimedMessage {
  /** All chunks, for another worker. */
  parts: ReadableStream<Part>;
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
    const answer = this.#start(call, controller.signal).then((begun) => {
      if (!begun) return undefined;
      started.isSent = true;
      onAbort(controller.signal, () => begun.message.finish());
      return read(begun);
    });
    // The activity calls the model itself then, and reports what is wrong.
    answer.catch(() => this.#end(turnId, 'failed'));
    const expiry = setTimeout(() => this.#end(turnId, 'expired'), UNCLAIMED_MS).unref();
    const started: StartedCall = { ...call, controller, isSent: false, answer, expiry };
    this.#started.set(turnId, started);
  }

  accept(turn: TurnAccepted): void {
    const started = this.#started.get(turn.turnId);
    if (!started) return;
    if (!follows(started, turn)) return this.#end(turn.turnId, 'mismatched');
    started.answer.then(
      (answer) => answer?.message.publish(),
      () => undefined,
    );
  }

  withdraw(turnId: string): void {
    this.#end(turnId, 'withdrawn');
  }

  async claim(call: ClaimedCall, signal: AbortSignal, onUnreported: OnUnreported): Promise<ClaimedMessage | undefined> {
    const answer = await this.#claim(call, signal, onUnreported);
    void answer?.parts.cancel();
    answer?.message.publish();
    return answer;
  }

  claimElsewhere(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  /** Claims a call for another worker, whose attempt replaces the message: gives all chunks. */
  async relay(
    call: ClaimedCall,
    signal: AbortSignal,
    onUnreported: OnUnreported,
  ): Promise<AsyncIterable<ModelChunk> | undefined> {
    const answer = await this.#claim(call, signal, onUnreported);
    answer?.message.finish();
    return answer && chunksOf(answer.parts);
  }

  async #claim(
    { turnId, ...call }: ClaimedCall,
    signal: AbortSignal,
    onUnreported: OnUnreported,
  ): Promise<Answer | undefined> {
    this.#claimed.set(turnId, true);
    const started = this.#take(turnId);
    if (!started) {
      if (this.#unreported.delete(turnId)) onUnreported();
      return undefined;
    }
    // Another turn may have been accepted first, or the agent of a draft may have changed.
    if (!follows(started, call) || started.specHash !== call.specHash) {
      started.controller.abort();
      this.#onEnd('mismatched');
      if (started.isSent) onUnreported();
      return undefined;
    }
    this.#onEnd('claimed');
    // A listener that stays on the signal would keep the call and its transcript in memory for as long as the signals
    // that it is composed of: the worker's lifetime.
    const release = linkSignal(signal, started.controller);
    const answer = await waitOrAbort(
      started.answer.catch(() => undefined),
      signal,
    );
    if (answer) void answer.ended.catch(() => undefined).finally(release);
    else release();
    return answer;
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

/** Whether a call was made for the turn at this place. Another turn may have been accepted before it. */
function follows(call: SpeculativeCall, turn: Pick<TurnAccepted, 'previousTurnId' | 'sequence'>): boolean {
  return call.previousTurnId === turn.previousTurnId && call.sequence === turn.sequence;
}

/** Reads an answer as it arrives: into its message, and for another worker that may claim it. */
function read({ message, parts: all }: BegunCall): Answer {
  const [own, parts] = all.tee();
  const ended = message.read(chunksOf(own));
  // An answer that nobody claims may fail.
  ended.catch(() => undefined);
  return { message, ended, parts };
}
