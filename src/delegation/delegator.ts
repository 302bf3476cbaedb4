import type { Client } from '@temporalio/client';
import { offloadResult } from '../blobs/offload.ts';
import type { DelegationRow } from '../catalog/schema.ts';
import type { Subject } from '../core/subject.ts';
import type { TurnCommand } from '../core/turn-command.ts';
import { hasTurn } from '../engine/access.ts';
import type { Engine } from '../engine/engine.ts';
import { EngineError, isRejected } from '../engine/errors.ts';
import { signalTurn } from '../engine/session-commands.ts';
import { TurnNotFound, unlessNotFound } from '../engine/turn-log-reader.ts';
import { errorMessage } from '../lib/errors.ts';
import { isNotFound } from '../temporal/errors.ts';
import { storeToolResult } from '../tools/results.ts';
import { delegateEnd, type DelegateEnd } from './delegate-end.ts';
import { createDelegate, startDelegateTurn, taskOf, type DelegatedToolCall } from './start-delegate.ts';

interface DelegatorOptions {
  engine: Engine;
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
  readonly #engine: Engine;
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
    const { catalog } = this.#engine;
    let delegation = await catalog.delegations.get(call.childSessionId);
    try {
      delegation ??= await createDelegate(this.#engine, call);
    } catch (error) {
      if (!isRejected(error)) throw error;
      return { problem: `The task was not given to the agent: ${errorMessage(error)}` };
    }
    const session = await catalog.sessions.get(call.childSessionId);
    // Its deletion answers the call.
    if (!session) return undefined;
    try {
      // A turn that exists is not rejected any more.
      const isStarted = await hasTurn(this.#engine, session, delegation.child_turn_id);
      if (!isStarted) await startDelegateTurn(this.#engine, delegation, session, taskOf(call).task);
    } catch (error) {
      if (!isRejected(error)) throw error;
      await this.#tell(delegation, { outcome: 'failed', text: `The agent could not start: ${errorMessage(error)}` });
      await catalog.delegations.stop(call.childSessionId);
    }
    // The parent's turn may have ended while the child's began.
    const { stopped } = (await catalog.delegations.get(call.childSessionId)) ?? delegation;
    if (stopped) await this.#cancel(delegation);
    return undefined;
  }

  /** A turn has ended: its parent is told, and its children are stopped. */
  async turnEnded(turnId: string): Promise<void> {
    const own = await this.#engine.catalog.delegations.untoldOf(turnId);
    await Promise.all([own && this.#settle(own), this.stopChildren({ turnId })]);
  }

  /** A session was deleted, and its turns have ended. */
  async sessionDeleted(sessionId: string): Promise<void> {
    const own = await this.#engine.catalog.delegations.get(sessionId);
    await Promise.all([own?.told === 0 && this.#settle(own), this.stopChildren({ sessionId })]);
  }

  /** Cancels the children of a turn, or of all turns of a session, that have not answered. */
  async stopChildren(parent: { turnId: string } | { sessionId: string }): Promise<void> {
    const children = await this.#engine.catalog.delegations.untoldBy(parent);
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

  /** Does what is left to do; `lost`: before this time all turns have started that ever will. */
  async settleAll(lost: string): Promise<void> {
    const { catalog, log } = this.#engine;
    for (const delegation of await catalog.delegations.toSettle(lost, LIMIT)) {
      const { child_session_id: sessionId, child_turn_id: turnId, created_at: createdAt, stopped, agent } = delegation;
      try {
        const isRequested = (await catalog.turns.get(turnId)) !== undefined;
        if (!isRequested && createdAt < lost)
          await this.#tell(delegation, { outcome: 'failed', text: `The work of the agent ${agent} was lost.` });
        else if (!(await this.#settle(delegation)) && (isRequested || !stopped)) await this.#stop(delegation);
      } catch (error) {
        log.warn({ sessionId, err: error }, 'a delegation could not be settled; housekeeping retries it');
      }
    }
  }

  /** Tells the parent how the child has ended. False if it has not. */
  async #settle(delegation: DelegationRow): Promise<boolean> {
    try {
      const end = await delegateEnd(this.#engine, delegation);
      if (end) await this.#tell(delegation, end);
      return end !== undefined;
    } catch (error) {
      if (error instanceof TurnNotFound) return false;
      throw error;
    }
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

  async #stop(delegation: DelegationRow): Promise<void> {
    // First: a child that is being started looks for this afterwards.
    await this.#engine.catalog.delegations.stop(delegation.child_session_id);
    await this.#cancel(delegation);
  }

  async #cancel({ child_session_id: sessionId, child_turn_id: turnId }: DelegationRow): Promise<void> {
    try {
      await this.#engine.commands.cancel(sessionId, { close: false, upTo: turnId, turnId });
    } catch (error) {
      const isDeleted = error instanceof EngineError && error.code === 'session_not_found';
      if (!isDeleted) throw error;
    }
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
