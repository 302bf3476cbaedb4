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

/** Delegations per sweep; the next sweep settles the rest. */
const LIMIT = 200;

/**
 * Runs the work that agents delegate: each call in a session of its own, whose first turn produces the result.
 *
 * The parent's turn waits without an activity, so the result is signalled to it; if the parent ends first, the child is
 * cancelled. The catalog records open delegations, so none is lost in a crash: the worker that ends a turn settles them
 * at once, and again after it has archived the turn; housekeeping settles the rest. All steps may be repeated.
 */
export class Delegator {
  readonly #engine: DelegatorOptions['engine'];
  readonly #client: Client;

  constructor({ engine, client }: DelegatorOptions) {
    this.#engine = engine;
    this.#client = client;
  }

  /**
   * Gives a task to another agent; a repetition changes nothing. Returns the reason if this is not possible now. Once
   * the delegate's session exists, the result is sent by a command, so that all attempts produce only one result.
   */
  async start(call: DelegatedToolCall): Promise<{ problem: string } | undefined> {
    const { catalog, sessionQueue } = this.#engine;
    const { childSessionId } = call;
    let release: (() => void) | undefined;
    try {
      // Limits do not apply to a repetition, whose turn may be running.
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

  /** Called when a turn has ended: sends its result to the parent's turn, and cancels its children. */
  async turnEnded(turnId: string): Promise<void> {
    const delegations = await this.#engine.catalog.delegations.unnotifiedOf(turnId);
    await Promise.all(delegations.map((one) => (one.child_turn_id === turnId ? this.#settle(one) : this.#stop(one))));
  }

  /** Called when a session was deleted and its turns have ended: notifies the parent's turn, deletes the children. */
  async sessionDeleted(sessionId: string): Promise<void> {
    const { sessions, delegations } = this.#engine.catalog;
    const own = await delegations.get(sessionId);
    if (own?.told === 0) await this.#settle(own);
    for (const { child_session_id: id } of await delegations.ofSession(sessionId)) {
      // The children of the child are deleted once its turns have ended.
      if (await sessions.get(id)) await deleteSession(this.#engine, { id });
    }
  }

  /** Cancels the children of a turn that have no result yet. */
  async stopChildren(turnId: string): Promise<void> {
    const children = await this.#engine.catalog.delegations.unnotifiedBy(turnId);
    await Promise.all(children.map((child) => this.#stop(child)));
  }

  /** Forces a child to finish with its next model call. */
  async force(childSessionId: string, subject: Subject): Promise<void> {
    const delegation = await this.#engine.catalog.delegations.get(childSessionId);
    if (!delegation || delegation.told) return;
    const { child_turn_id: turnId, parent_turn_id: parentTurnId } = delegation;
    // The turn may have been accepted a moment ago: this waits until it has started.
    await unlessNotFound(this.#engine.logs.start(turnId));
    await this.#signal(turnId, { type: 'force_answer', id: `force-answer of ${parentTurnId}`, subject });
  }

  /** Cancels a child that has no result yet. */
  async stop(childSessionId: string): Promise<void> {
    const delegation = await this.#engine.catalog.delegations.get(childSessionId);
    if (delegation?.told === 0) await this.#stop(delegation);
  }

  /** Settles the open delegations in which a turn or session has ended. */
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

  /** Sends the outcome of the child to the parent's turn. False if the child has not ended. */
  async #settle(delegation: DelegationRow): Promise<boolean> {
    const end = await delegateEnd(this.#engine, delegation);
    if (end) await this.#sendResult(delegation, end);
    return end !== undefined;
  }

  async #sendResult(delegation: DelegationRow, { outcome, text }: DelegateEnd): Promise<void> {
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
    await catalog.delegations.setNotified(childId);
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
    // The cancellation has ended a child that had not begun.
    await this.#settle(delegation);
  }

  /** Has no effect on a turn that has ended. */
  async #signal(turnId: string, command: TurnCommand): Promise<void> {
    try {
      await signalTurn(this.#client, turnId, command);
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }
}
