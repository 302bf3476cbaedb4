import { setTimeout as sleep } from 'node:timers/promises';
import {
  WithStartWorkflowOperation,
  WorkflowUpdateFailedError,
  WorkflowUpdateRPCTimeoutOrCancelledError,
  type Client,
} from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import type { Logger } from 'pino';
import { startRemoval } from '../housekeeping/remove-deleted.ts';
import { isNotFound, isTemporalUnavailable } from '../temporal/errors.ts';
import { SESSION_WORKFLOW, sessionWorkflowId, WORKFLOW_TASK_TIMEOUT } from '../core/temporal-names.ts';
import { cancelSession, createTurn } from '../../workflows/messages.ts';
import type { CancelCommand, CreateTurnCommand, TurnAccepted } from '../core/session.ts';
import type { session } from '../../workflows/session.ts';
import type { SessionStart } from '../core/session.ts';
import { ApiError, ERRORS, type ErrorCode } from '../api/http/errors.ts';
import { backoffMs } from '../lib/backoff.ts';
import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';

/** Temporal lets few Updates of one workflow be under way, and collapses at its limit. */
const MAX_CONCURRENT_UPDATES = 4;

/** A command waits for the turn before it to end, which may take half a minute. */
const COMMAND_TIMEOUT_MS = 45_000;

/** How long we ask what became of a command whose answer was lost. */
const LOOKUP_TIMEOUT_MS = 3_000;

/**
 * A command that met its session's workflow as that was closing, or Temporal in a bad moment, is sent again: so often,
 * and only this long after the first time. It is carried out once all the same.
 */
const MAX_TRIES = 3;
const TRY_AGAIN_WITHIN_MS = 3_000;
const FIRST_PAUSE_MS = 50;

/** Sends commands to the workflows of sessions, starting those that do not run. */
export class SessionCommands {
  readonly #client: Client;
  readonly #taskQueue: string;
  readonly #log: Logger;
  readonly #queue = new KeyedSemaphore(MAX_CONCURRENT_UPDATES);

  constructor({ client, taskQueue, log }: { client: Client; taskQueue: string; log: Logger }) {
    this.#client = client;
    this.#taskQueue = taskQueue;
    this.#log = log;
  }

  /**
   * Starts a turn; a command that comes twice is carried out once.
   * @throws ApiError with the reason if the session refuses it; `unavailable` if it is not known what became of it.
   */
  async createTurn(sessionId: string, command: CreateTurnCommand): Promise<TurnAccepted> {
    return this.#update(sessionId, command.turnId, (operation) =>
      this.#client.workflow.executeUpdateWithStart(createTurn, {
        updateId: command.turnId,
        args: [command],
        startWorkflowOperation: operation,
      }),
    );
  }

  /** Asks the running turn, if any, to end. */
  async cancel(sessionId: string, command: CancelCommand): Promise<void> {
    await this.#update(sessionId, undefined, (operation) =>
      this.#client.workflow.executeUpdateWithStart(cancelSession, {
        args: [command],
        startWorkflowOperation: operation,
      }),
    );
  }

  /** Has a deleted session removed. If that can't be asked for now, the housekeeping does. */
  remove(sessionId: string): void {
    startRemoval({ client: this.#client, taskQueue: this.#taskQueue }, sessionId).catch((error: unknown) =>
      this.#log.warn({ sessionId, err: error }, 'the removal of a session could not be started yet'),
    );
  }

  async #update<T>(
    sessionId: string,
    updateId: string | undefined,
    send: (operation: WithStartWorkflowOperation<typeof session>) => Promise<T>,
  ): Promise<T> {
    return this.#queue.run(sessionId, async () => {
      const tryUntil = Date.now() + TRY_AGAIN_WITHIN_MS;
      for (let tries = 1; ; tries++) {
        const operation = this.#startOperation({ sessionId, ...(updateId && { begins: updateId }) });
        // Rejects with the command itself; nobody else listens.
        operation.workflowHandle().catch(() => undefined);
        try {
          return await this.#client.connection.withDeadline(Date.now() + COMMAND_TIMEOUT_MS, () => send(operation));
        } catch (error) {
          const mayPass = isNotFound(error) || isTemporalUnavailable(error);
          if (!mayPass || tries >= MAX_TRIES || Date.now() >= tryUntil) {
            return await this.#outcome<T>(sessionId, updateId, error);
          }
          await sleep(backoffMs(tries, { first: FIRST_PAUSE_MS }));
        }
      }
    });
  }

  #startOperation(start: SessionStart): WithStartWorkflowOperation<typeof session> {
    return new WithStartWorkflowOperation<typeof session>(SESSION_WORKFLOW, {
      workflowId: sessionWorkflowId(start.sessionId),
      workflowIdConflictPolicy: 'USE_EXISTING',
      taskQueue: this.#taskQueue,
      workflowTaskTimeout: WORKFLOW_TASK_TIMEOUT,
      args: [start],
    });
  }

  /** What became of a command that did not simply succeed. */
  async #outcome<T>(sessionId: string, updateId: string | undefined, error: unknown): Promise<T> {
    if (error instanceof WorkflowUpdateFailedError) throw this.#refusal(sessionId, error);
    const isAmbiguous = error instanceof WorkflowUpdateRPCTimeoutOrCancelledError || isTemporalUnavailable(error);
    if (!isAmbiguous) throw error;
    if (updateId) {
      try {
        const handle = this.#client.workflow.getHandle(sessionWorkflowId(sessionId)).getUpdateHandle<T>(updateId);
        return await this.#client.connection.withDeadline(Date.now() + LOOKUP_TIMEOUT_MS, () => handle.result());
      } catch (lookupError) {
        if (lookupError instanceof WorkflowUpdateFailedError) throw this.#refusal(sessionId, lookupError);
      }
    }
    throw new ApiError('unavailable', 'the session can not be reached for the moment; try again', { cause: error });
  }

  #refusal(sessionId: string, error: WorkflowUpdateFailedError): ApiError {
    const { cause } = error;
    if (!(cause instanceof ApplicationFailure) || !isErrorCode(cause.type)) {
      return new ApiError('internal_error', 'the session failed to carry out the command', { cause: error });
    }
    // The session was deleted while the command was on its way, and the command has left a trace of it.
    if (cause.type === 'session_not_found') this.remove(sessionId);
    return new ApiError(cause.type, cause.message);
  }
}

function isErrorCode(type: string | undefined | null): type is ErrorCode {
  return typeof type === 'string' && type in ERRORS;
}
