import { setTimeout as sleep } from 'node:timers/promises';
import {
  WithStartWorkflowOperation,
  WorkflowUpdateFailedError,
  WorkflowUpdateRPCTimeoutOrCancelledError,
  type Client,
} from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import type { Logger } from 'pino';
import { isNotFound, isTemporalUnavailable } from '../temporal/errors.ts';
import {
  DELETE_SESSION_WORKFLOW,
  deleteSessionWorkflowId,
  SESSION_WORKFLOW,
  sessionWorkflowId,
  turnWorkflowId,
  WORKFLOW_TASK_TIMEOUT,
} from '../core/temporal-names.ts';
import type { deleteSession } from '../../workflows/delete-session.ts';
import type { TurnCommand } from '../core/turn-command.ts';
import { cancelSession, commandTurn, createTurn } from '../../workflows/messages.ts';
import type { CancelCommand, CreateTurnCommand, SessionStart, TurnCreation } from '../core/session.ts';
import type { session } from '../../workflows/session.ts';
import { backoffMs } from '../lib/backoff.ts';
import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';
import { EngineError, isEngineErrorCode } from './errors.ts';

/** Temporal limits the Updates in flight per workflow, and its performance collapses at the limit. */
const MAX_CONCURRENT_UPDATES = 4;

/** A command waits for the previous turn to end, which may take half a minute. */
const COMMAND_TIMEOUT_MS = 45_000;

/** Time for looking up the outcome of a command whose response was lost. */
const LOOKUP_TIMEOUT_MS = 3_000;

/**
 * A command that arrives while its session's workflow is closing, or while Temporal is unavailable, is retried: at most
 * this often, and only within this time after the first attempt. It is still carried out at most once.
 */
const MAX_ATTEMPTS = 3;
const RETRY_WITHIN_MS = 3_000;
const FIRST_PAUSE_MS = 50;

/** A signal does not wait for a worker. */
const SIGNAL_TIMEOUT_MS = 10_000;

const START_TIMEOUT_MS = 10_000;

interface StartOptions {
  client: Client;
  taskQueue: string;
}

/** The options with which the workflow of a session is started, unless it runs. */
function sessionOptions(taskQueue: string, start: SessionStart) {
  return {
    workflowId: sessionWorkflowId(start.sessionId),
    workflowIdConflictPolicy: 'USE_EXISTING' as const,
    workflowTaskTimeout: WORKFLOW_TASK_TIMEOUT,
    taskQueue,
    args: [start] satisfies Parameters<typeof session>,
  };
}

/** Starts the removal of a deleted session, unless it is in progress. */
export async function startRemoval({ client, taskQueue }: StartOptions, sessionId: string): Promise<void> {
  await client.connection.withDeadline(Date.now() + START_TIMEOUT_MS, () =>
    client.workflow.start<typeof deleteSession>(DELETE_SESSION_WORKFLOW, {
      workflowId: deleteSessionWorkflowId(sessionId),
      workflowIdConflictPolicy: 'USE_EXISTING',
      taskQueue,
      args: [{ sessionId }],
    }),
  );
}

/** Sends a command to a running turn. The command is in the turn's history when this returns. */
export async function signalTurn(client: Client, turnId: string, command: TurnCommand): Promise<void> {
  const turn = client.workflow.getHandle(turnWorkflowId(turnId));
  await client.connection.withDeadline(Date.now() + SIGNAL_TIMEOUT_MS, () => turn.signal(commandTurn, command));
}

/** Starts a session's workflow, unless it runs. */
export async function startSession({ client, taskQueue }: StartOptions, sessionId: string): Promise<void> {
  await client.connection.withDeadline(Date.now() + START_TIMEOUT_MS, () =>
    client.workflow.start<typeof session>(SESSION_WORKFLOW, sessionOptions(taskQueue, { sessionId })),
  );
}

/** Sends commands to session workflows, and starts those that are not running. */
export class SessionCommands {
  readonly #options: StartOptions & { log: Logger };
  readonly #queue = new KeyedSemaphore(MAX_CONCURRENT_UPDATES);

  constructor(options: StartOptions & { log: Logger }) {
    this.#options = options;
  }

  /**
   * Starts a turn. A command that is sent twice is carried out once.
   * @throws EngineError with the reason if the session rejects the command; `unavailable` if its outcome is unknown.
   */
  async createTurn(sessionId: string, command: CreateTurnCommand): Promise<TurnCreation> {
    return this.#update(sessionId, command.turnId, (operation) =>
      this.#options.client.workflow.executeUpdateWithStart(createTurn, {
        updateId: command.turnId,
        args: [command],
        startWorkflowOperation: operation,
      }),
    );
  }

  /** Cancels turns. @throws EngineError */
  async cancel(sessionId: string, command: CancelCommand): Promise<void> {
    await this.#update(sessionId, undefined, (operation) =>
      this.#options.client.workflow.executeUpdateWithStart(cancelSession, {
        args: [command],
        startWorkflowOperation: operation,
      }),
    );
  }

  /**
   * Sends a command to a running turn. It is in the turn's history when this returns true; whether it counts is decided
   * by the turn. False if the turn has ended. @throws EngineError `unavailable` if its outcome is unknown
   */
  async commandTurn(turnId: string, command: TurnCommand): Promise<boolean> {
    try {
      await signalTurn(this.#options.client, turnId, command);
      return true;
    } catch (error) {
      if (isNotFound(error)) return false;
      if (!isTemporalUnavailable(error)) throw error;
      throw new EngineError('unavailable', 'the turn cannot be reached; try again', { cause: error });
    }
  }

  /** Starts the removal of a deleted session. If that fails now, housekeeping starts it later. */
  remove(sessionId: string): void {
    const message = 'the removal of a session could not be started; housekeeping retries it';
    startRemoval(this.#options, sessionId).catch((error: unknown) =>
      this.#options.log.warn({ sessionId, err: error }, message),
    );
  }

  async #update<T>(
    sessionId: string,
    updateId: string | undefined,
    send: (operation: WithStartWorkflowOperation<typeof session>) => Promise<T>,
  ): Promise<T> {
    const { client, taskQueue } = this.#options;
    return this.#queue.run(sessionId, async () => {
      const retryUntil = Date.now() + RETRY_WITHIN_MS;
      for (let attempt = 1; ; attempt++) {
        const operation = new WithStartWorkflowOperation<typeof session>(
          SESSION_WORKFLOW,
          sessionOptions(taskQueue, { sessionId, ...(updateId && { begins: updateId }) }),
        );
        // Rejects together with the command, whose error is handled below.
        operation.workflowHandle().catch(() => undefined);
        try {
          return await client.connection.withDeadline(Date.now() + COMMAND_TIMEOUT_MS, () => send(operation));
        } catch (error) {
          const isTransient = isNotFound(error) || isTemporalUnavailable(error);
          if (!isTransient || attempt >= MAX_ATTEMPTS || Date.now() >= retryUntil) {
            return await this.#outcome<T>(sessionId, updateId, error);
          }
          await sleep(backoffMs(attempt, { first: FIRST_PAUSE_MS }));
        }
      }
    });
  }

  /** The outcome of a command whose request failed. */
  async #outcome<T>(sessionId: string, updateId: string | undefined, error: unknown): Promise<T> {
    if (error instanceof WorkflowUpdateFailedError) throw this.#rejection(sessionId, error);
    const isAmbiguous = error instanceof WorkflowUpdateRPCTimeoutOrCancelledError || isTemporalUnavailable(error);
    if (!isAmbiguous) throw error;
    if (updateId) {
      const { client } = this.#options;
      try {
        const handle = client.workflow.getHandle(sessionWorkflowId(sessionId)).getUpdateHandle<T>(updateId);
        return await client.connection.withDeadline(Date.now() + LOOKUP_TIMEOUT_MS, () => handle.result());
      } catch (lookupError) {
        if (lookupError instanceof WorkflowUpdateFailedError) throw this.#rejection(sessionId, lookupError);
      }
    }
    throw new EngineError('unavailable', 'the session cannot be reached; try again', { cause: error });
  }

  #rejection(sessionId: string, error: WorkflowUpdateFailedError): EngineError {
    const { cause } = error;
    if (!(cause instanceof ApplicationFailure) || !isEngineErrorCode(cause.type)) {
      return new EngineError('internal_error', 'the session failed to carry out the command', { cause: error });
    }
    // The session was deleted while the command was in flight, and the command started its workflow again.
    if (cause.type === 'session_not_found') this.remove(sessionId);
    return new EngineError(cause.type, cause.message);
  }
}
