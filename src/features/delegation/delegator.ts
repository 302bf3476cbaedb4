import type { Client } from '@temporalio/client';
import { offloadResult } from '../../blobs/offload.ts';
import type { DelegationRow } from './delegation-rows.ts';
import type { Subject } from '../../core/subject.ts';
import type { TurnCommand } from '../../core/turn-command.ts';
import { deleteSession, type Engine } from '../../engine/engine.ts';
import { EngineError, isRejected } from '../../engine/errors.ts';
import { signalTurn } from '../../engine/session-commands.ts';
import type { SessionQueue } from '../agent-sessions/session-queue.ts';
import { unlessNotFound } from '../../engine/turn-log-reader.ts';
import { errorMessage } from '../../lib/errors.ts';
import { isNotFound } from '../../temporal/errors.ts';
import { storeToolResult } from '../../tools/results.ts';
import { delegateEnd, type DelegateEnd } from './delegate-end.ts';
import { createDelegate, type DelegatedToolCall, type DelegationServices } from './create-delegate.ts';

interface DelegatorOptions {
  engine: Engine & DelegationServices & { sessionQueue: SessionQueue };
  client: Client;
}

/** Delegations per sweep; the rest is left to the next. */
const LIMIT = 200;

/**
 * Runs the work that agents delegate to others: each call of a turn in a session of its own, whose first turn answers it.
 *
 * The parent's turn waits without an activity, so it has to be told the result, and the child's turn that its parent has
 * ended. The catalog knows what is left to do, so nothing is lost in a crash: the worker that sees the end of a turn does
 * it at once, and again after it has archived the turn; housekeeping does what was missed. All of it may be repeated.
 */
export class Delegator {
  readonly #engine: DelegatorOptions['engine'];
  readonly #client: Client;

  constructor({ engine, client }: DelegatorOptions) {
    this.#engine = engine;
    this.#client = client;
  }

  /**
   * Gives a task to another agent; a repetition changes nothing. Returns why that is not possible now. Once the session of
   * the agent exists, the call is answered by a command, so that it has one result whatever attempt arrives first.
   */
  async start(call: DelegatedToolCall): Promise<{ problem: string } | undefined> {
    const { catalog, sessionQueue } = this.#engine;
    const { childSessionId } = call;
    let release: (() => void) | undefined;
    try {
      // A repetition is not limited: its turn may be running.
      if (!(await catalog.delegations.get(childSessionId))) {
        release = await createDelegate(this.#engine, call);
      }
    } catch (error) {
      if (!isRejected(error)) throw error;
      return { problem: `The task was not given to the agent: ${errorMessage(error)}` };
    }
    try {
      await sessionQueue.start(childSessionId);
    } catch (error) {
      if (!isRejected(error)) throw error;
      const delegation = await catalog.delegations.get(childSessionId);
      if (delegation) await this.#settle(delegation);
    } finally {
      release?.();
    }
    return undefined;
  }

  /** A turn has ended: its parent is told, and its children are stopped. */
  async turnEnded(turnId: string): Promise<void> {
    const delegations = await this.#engine.catalog.delegations.untoldOf(turnId);
    await Promise.all(delegations.map((one) => (one.child_turn_id === turnId ? this.#settle(one) : this.#stop(one))));
  }

  /** A session was deleted, and its turns have ended: its parent is told, and its children are deleted, too. */
  async sessionDeleted(sessionId: string): Promise<void> {
    const { sessions, delegations } = this.#engine.catalog;
    const own = await delegations.get(sessionId);
    if (own?.told === 0) await this.#settle(own);
    for (const { child_session_id: id } of await delegations.ofSession(sessionId)) {
      // Its own children are deleted when its turns have ended.
      if (await sessions.get(id)) await deleteSession(this.#engine, { id });
    }
  }

  /** Cancels the children of a turn that have not answered. */
  async stopChildren(turnId: string): Promise<void> {
    const children = await this.#engine.catalog.delegations.untoldBy(turnId);
    await Promise.all(children.map((child) => this.#stop(child)));
  }

  /** Has a child answer with its next model call. */
  async force(childSessionId: string, subject: Subject): Promise<void> {
    const delegation = await this.#engine.catalog.delegations.get(childSessionId);
    if (!delegation || delegation.told) return;
    const { child_turn_id: turnId, parent_turn_id: parentTurnId } = delegation;
    // It may have been accepted a moment ago: this waits until it has started.
    await unlessNotFound(this.#engine.logs.start(turnId));
    await this.#signal(turnId, { type: 'force_answer', id: `force-answer of ${parentTurnId}`, subject });
  }

  /** Cancels a child that has not answered. */
  async stop(childSessionId: string): Promise<void> {
    const delegation = await this.#engine.catalog.delegations.get(childSessionId);
    if (delegation?.told === 0) await this.#stop(delegation);
  }

  /** Does what is left to do. */
  async settleAll(): Promise<void> {
    const { catalog, log } = this.#engine;
    for (const delegation of await catalog.delegations.toSettle(LIMIT)) {
      try {
        await this.#stop(delegation);
      } catch (error) {
        const { child_session_id: sessionId } = delegation;
        log.warn({ sessionId, err: error }, 'a delegation could not be settled; housekeeping retries it');
      }
    }
  }

  /** Tells the parent how the child has ended. False if it has not. */
  async #settle(delegation: DelegationRow): Promise<boolean> {
    const end = await delegateEnd(this.#engine, delegation);
    if (end) await this.#tell(delegation, end);
    return end !== undefined;
  }

  async #tell(delegation: DelegationRow, { outcome, text }: DelegateEnd): Promise<void> {
    const { catalog, blobs } = this.#engine;
    const { child_session_id: childId, parent_session_id: sessionId, parent_turn_id: turnId } = delegation;
    if (await catalog.sessions.get(sessionId)) {
      const stored = await storeToolResult({ text, files: [] }, { blobs, sessionId });
      await this.#signal(turnId, {
        type: 'delegation',
        id: `delegation ${childId}`,
        threadId: delegation.thread_id,
        toolCallId: delegation.tool_call_id,
        sessionId: childId,
        result: await offloadResult({ outcome, ...stored }, { blobs, sessionId }),
      });
    }
    await catalog.delegations.told(childId);
  }

  /** Cancels a child, unless it has ended. */
  async #stop(delegation: DelegationRow): Promise<void> {
    if (await this.#settle(delegation)) return;
    const { child_session_id: id, child_turn_id: turnId } = delegation;
    try {
      await this.#engine.sessionQueue.cancel({ id }, turnId);
    } catch (error) {
      const isDeleted = error instanceof EngineError && error.code === 'session_not_found';
      if (!isDeleted) throw error;
    }
    // One that had not begun has ended with that.
    await this.#settle(delegation);
  }

  /** Without effect on a turn that has ended. */
  async #signal(turnId: string, command: TurnCommand): Promise<void> {
    try {
      await signalTurn(this.#client, turnId, command);
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }
}
