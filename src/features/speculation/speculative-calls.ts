import { LRUCache } from 'lru-cache';
import type { MessageAssembler } from '../../agents/message-assembler.ts';
import type { ModelCall } from '../../core/model-call.ts';
import type { TurnAccepted } from '../../core/session.ts';
import type { SpeculativeCall } from '../../engine/speculation.ts';
import { linkSignal, onAbort, waitOrAbort } from '../../lib/abort.ts';
import type { SpeculativeCallOutcome } from '../../telemetry/metrics.ts';
import { chunksOf, type Part } from './read-ahead.ts';

/** Calls the model; undefined if the turn's first model call is unknown until its session has accepted the turn. */
export type StartSpeculativeCall = (start: SpeculativeCall, signal: AbortSignal) => Promise<BegunCall | undefined>;

export interface BegunCall {
  /** Attempt 0 of the turn's first message, not published yet. */
  message: MessageAssembler;
  parts: ReadableStream<Part>;
}

export interface ClaimedMessage {
  message: MessageAssembler;
  /** Settles when the message is complete. Rejects with the failure of the model. */
  ended: Promise<void>;
}

type ClaimedCall = Pick<ModelCall, 'turnId' | 'previousTurnId' | 'sequence' | 'specHash'>;

/** An unclaimed call ends after this time: its turn was rejected, or runs on another worker. */
const UNCLAIMED_MS = 30_000;

/** A call is offered, claimed and withdrawn within this time. */
const REMEMBERED_MS = 60_000;

const MAX_REMEMBERED = 10_000;

interface StartedCall extends SpeculativeCall {
  controller: AbortController;
  response: Promise<ClaimedMessage | undefined>;
  expiry: NodeJS.Timeout;
}

/**
 * First model calls that are started while their turns are still being sent to Temporal, which hides Temporal's latency
 * behind the model's. An unclaimed call only costs tokens, because a model call has no side effects.
 *
 * Calls are started where the API and a worker share a process, which then most likely runs the activity too. A call's
 * message is published as attempt 0 once the turn is accepted, so that nothing of a rejected turn is shown. The
 * activity that claims the call continues that message; an activity on another worker replaces it with its own attempt.
 */
export class SpeculativeCalls {
  readonly #started = new Map<string, StartedCall>();
  /** Turns that have claimed or skipped their calls: a later offer is ignored. */
  readonly #claimed = new LRUCache<string, true>({ max: MAX_REMEMBERED, ttl: REMEMBERED_MS });
  readonly #onEnd: (outcome: SpeculativeCallOutcome) => void;
  #start: StartSpeculativeCall | undefined;

  constructor(onEnd: (outcome: SpeculativeCallOutcome) => void = () => undefined) {
    this.#onEnd = onEnd;
  }

  /** Called once by the worker of this process: starts the calls that are offered, until `stop` is aborted. */
  serve(start: StartSpeculativeCall, stop: AbortSignal): void {
    this.#start = start;
    stop.addEventListener('abort', () => {
      this.#start = undefined;
      for (const turnId of this.#started.keys()) this.withdraw(turnId);
    });
  }

  /** Whether a worker of this process starts the calls that are offered. */
  get isServed(): boolean {
    return this.#start !== undefined;
  }

  /** Called by the API: starts the first model call of a turn. Never throws and never waits. */
  offer(call: SpeculativeCall): void {
    const { turnId } = call;
    if (!this.#start || this.#claimed.has(turnId)) return;
    const controller = new AbortController();
    const response = this.#start(call, controller.signal).then((begun) => {
      if (!begun) return undefined;
      onAbort(controller.signal, () => begun.message.finish());
      return read(begun);
    });
    // The activity then calls the model itself, and reports the failure.
    response.catch(() => this.#end(turnId, 'failed'));
    const expiry = setTimeout(() => this.#end(turnId, 'expired'), UNCLAIMED_MS).unref();
    this.#started.set(turnId, { ...call, controller, response, expiry });
  }

  /** Called by the API when the turn is accepted: publishes the message, if the call fits the turn. Never waits. */
  accept(turn: TurnAccepted): void {
    const started = this.#started.get(turn.turnId);
    if (!started) return;
    if (!follows(started, turn)) return this.#end(turn.turnId, 'mismatched');
    started.response.then(
      (response) => response?.message.publish(),
      () => undefined,
    );
  }

  /** Ends the call: the turn was rejected, or has ended. */
  withdraw(turnId: string): void {
    this.#end(turnId, 'withdrawn');
  }

  /**
   * Called once by the activity: the message of the call that this process has started for its turn, or undefined. The
   * activity finishes the message. Aborting `signal` ends the call.
   */
  async claim({ turnId, ...call }: ClaimedCall, signal: AbortSignal): Promise<ClaimedMessage | undefined> {
    this.#claimed.set(turnId, true);
    const started = this.#take(turnId);
    if (!started) return undefined;
    // Another turn may have been accepted first, or the agent of a draft may have changed.
    if (!follows(started, call) || started.specHash !== call.specHash) {
      started.controller.abort();
      this.#onEnd('mismatched');
      return undefined;
    }
    this.#onEnd('claimed');
    // A listener that stays on the signal would keep the call and its transcript in memory for as long as the signals
    // that it is composed of: the worker's lifetime.
    const release = linkSignal(signal, started.controller);
    const response = await waitOrAbort(
      started.response.catch(() => undefined),
      signal,
    );
    if (response) void response.ended.catch(() => undefined).finally(release);
    else release();
    response?.message.publish();
    return response;
  }

  /** Called by an activity that calls the model itself: ends the call that was started, if any. Never waits. */
  skip(turnId: string): void {
    this.#claimed.set(turnId, true);
    this.#end(turnId, 'withdrawn');
  }

  #end(turnId: string, outcome: SpeculativeCallOutcome): void {
    const started = this.#take(turnId);
    if (!started) return;
    started.controller.abort();
    this.#onEnd(outcome);
  }

  #take(turnId: string): StartedCall | undefined {
    const started = this.#started.get(turnId);
    clearTimeout(started?.expiry);
    this.#started.delete(turnId);
    return started;
  }
}

/** Whether a call was made for this position of the turn. Another turn may have been accepted before it. */
function follows(call: SpeculativeCall, turn: Pick<TurnAccepted, 'previousTurnId' | 'sequence'>): boolean {
  return call.previousTurnId === turn.previousTurnId && call.sequence === turn.sequence;
}

/** Reads a response into its message as it arrives. */
function read({ message, parts }: BegunCall): ClaimedMessage {
  const ended = message.read(chunksOf(parts));
  // The failure of an unclaimed response is ignored.
  ended.catch(() => undefined);
  return { message, ended };
}
