import {
  condition,
  getExternalWorkflowHandle,
  log,
  proxyActivities,
  proxySinks,
  type Sinks,
} from '@temporalio/workflow';
import type { Activities } from '../activities/index.ts';
import type { TurnResult } from '../src/core/history.ts';
import type { Waiting } from '../src/core/records/pending.ts';
import type { CancelReason } from '../src/core/records/turn.ts';
import { turnWorkflowId } from '../src/core/temporal-names.ts';
import { errorMessage } from './errors.ts';
import { cancelTurn } from './messages.ts';

/**
 * Short reads of the catalog and of histories, retried while these are unavailable, since no command can be decided
 * without them.
 */
export const reading = {
  startToCloseTimeout: '10 seconds',
  retry: { initialInterval: '200 milliseconds', maximumInterval: '5 seconds' },
} as const;

export const { inspectTurn } = proxyActivities<Pick<Activities, 'inspectTurn'>>({
  ...reading,
  heartbeatTimeout: '4 seconds',
});

/**
 * Terminates a turn that does not end: two quick calls to Temporal, retried for ever, since the session waits for it.
 * Lost workers are not counted: the calls depend on no content that could stall a worker, and if one is lost, the next
 * attempt is made only after 30 seconds.
 */
const { terminateTurn } = proxyActivities<Pick<Activities, 'terminateTurn'>>({
  startToCloseTimeout: '30 seconds',
  retry: { maximumInterval: '10 seconds' },
});

/**
 * The worker's archiver. It costs no event and no workflow task, and may be lost with its worker: housekeeping archives
 * what it has missed.
 */
export interface ArchiveSinks extends Sinks {
  archive: { turnEnded(turnId: string): void };
}

const { archive } = proxySinks<ArchiveSinks>();

/** A cancelled turn that has not ended after this time is terminated: it hangs, or no worker is available. */
const CANCEL_GRACE = '10 seconds';
/** The additional time for a turn that runs a tool which must not be aborted. */
const TOOL_GRACE = '20 seconds';

const FIRST_POLL_MS = 1_000;
const MAX_POLL_MS = 60_000;

const NOTHING: Waiting = { pending: [] };

interface TurnWatchOptions {
  sessionId: string;
  /** Whether the session considers the turn to be running. */
  runs: (turnId: string) => boolean;
  /** The running turn has ended, with what waits on it. */
  ended: (waiting: Waiting) => void;
  /** The workflow of a turn has closed, which may have waited in the queue. */
  closed: (turnId: string) => void;
  /** The running turn has ended before it could begin. */
  neverBegan: (turnId: string) => Promise<void>;
}

/** Watches the turns of a session until they end, and stops them. */
export class TurnWatch {
  readonly #options: TurnWatchOptions;
  /** The turns for whose end this run waits as their parent. */
  readonly #children = new Set<string>();
  readonly #stopping = new Set<string>();

  constructor(options: TurnWatchOptions) {
    this.#options = options;
  }

  /** Whether turns are being stopped: until then the session does not continue as new. */
  get isStopping(): boolean {
    return this.#stopping.size > 0;
  }

  /** Watches a turn as its parent. */
  child(turnId: string, result: Promise<TurnResult>): void {
    runInBackground(() => this.#untilClosed(turnId, result));
  }

  /** Watches a running turn, unless it is watched as a child. */
  running(turnId: string): void {
    if (!this.#children.has(turnId)) runInBackground(() => this.#poll(turnId));
  }

  /** Cancels a turn, and terminates it if it does not end. The first reason is kept. */
  stop(turnId: string, reason: CancelReason): void {
    if (!this.#stopping.has(turnId)) this.#whileStopping(turnId, () => this.#untilStopped(turnId, reason));
  }

  /** Cancels a turn that waits in the queue. It ends as soon as a worker is available. */
  stopQueued(turnId: string, reason: CancelReason): void {
    this.#whileStopping(turnId, async () => {
      // It may have closed: an operator can cancel it, too.
      await signalCancel(turnId, reason).catch(() => undefined);
      archive.turnEnded(turnId);
    });
  }

  /** Checks whether a running turn has ended. */
  async reconcile(turnId: string): Promise<void> {
    const { sessionId, runs, neverBegan } = this.#options;
    if (!runs(turnId)) return;
    let seen: Awaited<ReturnType<typeof inspectTurn>>;
    try {
      seen = await inspectTurn({ sessionId, turnId });
    } catch (error) {
      log.warn('the turn of a session could not be inspected; retrying', {
        turnId,
        error: errorMessage(error),
      });
      return;
    }
    if (!runs(turnId) || seen?.open) return;
    if (seen?.queued) await neverBegan(turnId);
    else this.#ended(turnId, seen ?? NOTHING);
  }

  #whileStopping(turnId: string, stop: () => Promise<void>): void {
    this.#stopping.add(turnId);
    runInBackground(() => stop().finally(() => this.#stopping.delete(turnId)));
  }

  async #untilStopped(turnId: string, reason: CancelReason): Promise<void> {
    try {
      await signalCancel(turnId, reason);
    } catch {
      // It has closed, and its signal may have been lost.
      await this.reconcile(turnId);
    }
    for (const sparesTools of [true, false]) {
      const grace = sparesTools ? CANCEL_GRACE : TOOL_GRACE;
      if (await condition(() => !this.#options.runs(turnId), grace)) return;
      if (await terminateTurn({ turnId, reason, sparesTools })) break;
    }
    await this.reconcile(turnId);
  }

  async #untilClosed(turnId: string, closed: Promise<TurnResult>): Promise<void> {
    this.#children.add(turnId);
    const result = await closed.catch(() => undefined);
    this.#children.delete(turnId);
    this.#options.closed(turnId);
    // It has closed in the queue. The worker that was notified of its cancellation may have been lost before.
    if (!this.#options.runs(turnId)) archive.turnEnded(turnId);
    if (result) {
      this.#ended(turnId, result.status === 'done' ? result : NOTHING);
      return;
    }
    // It failed, or an operator has terminated or reset it.
    await this.reconcile(turnId);
    await this.#poll(turnId);
  }

  /**
   * Polls a turn that this run did not start: only its parent run is notified when it closes. The next turn of the
   * queue waits for it, so the first polls come early.
   */
  async #poll(turnId: string): Promise<void> {
    const hasEnded = () => !this.#options.runs(turnId);
    for (let wait = FIRST_POLL_MS; !(await condition(hasEnded, wait)); wait = Math.min(2 * wait, MAX_POLL_MS)) {
      await this.reconcile(turnId);
    }
  }

  #ended(turnId: string, waiting: Waiting): void {
    if (!this.#options.runs(turnId)) return;
    this.#options.ended(waiting);
    archive.turnEnded(turnId);
  }
}

function signalCancel(turnId: string, reason: CancelReason): Promise<void> {
  return getExternalWorkflowHandle(turnWorkflowId(turnId)).signal(cancelTurn, reason);
}

/** Runs a task concurrently with the commands. Its errors must not fail the workflow task. */
export function runInBackground(task: () => Promise<void>): void {
  task().catch((error: unknown) =>
    log.error('a background task of the session failed', { error: errorMessage(error) }),
  );
}
