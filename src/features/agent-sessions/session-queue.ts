import type { SessionRow } from '../../catalog/schema.ts';
import { subjectOf } from '../../catalog/sessions.ts';
import { rolesIn } from '../../catalog/subject-roles.ts';
import type { RequestInput } from './session-inputs.ts';
import type { SessionRequests } from './session-requests.ts';
import type { SessionSlots } from './session-slots.ts';
import {
  isRefused,
  MAX_QUEUED_SESSIONS,
  queuedPerSubject,
  type Capacity,
  type RefusedPlacement,
} from './slot-holders.ts';
import type { Config } from '../../config.ts';
import type { InputItem } from '../../core/records/input.ts';
import type { Caller } from '../../core/subject.ts';
import { hasTurn } from '../../engine/access.ts';
import { cancelTurns } from '../../engine/engine.ts';
import { EngineError, isRejected } from '../../engine/errors.ts';
import type { Limits } from '../../engine/limits.ts';
import { newId } from '../../engine/new-id.ts';
import { soleClaim } from '../../engine/request-claims.ts';
import {
  createdAtOf,
  runnableAgent,
  startTurn,
  type RequestedTurn,
  type StartServices,
} from '../../engine/start-turn.ts';
import { errorMessage, NamedError } from '../../lib/errors.ts';

type QueueServices = Omit<StartServices, 'config'> & {
  catalog: { sessionSlots: SessionSlots; sessionRequests: SessionRequests };
  config: StartServices['config'] & Pick<Config, 'agentSessions'>;
  limits: () => Pick<Limits, 'agentSessionsPerSubject'>;
};

type NewSession = Omit<Parameters<SessionSlots['create']>[0], 'turnId'>;

/** A first turn is not started because its session was cancelled or another process has replaced the turn. */
class Superseded extends NamedError {}

/**
 * Limits how many sessions of the Agents API v2 work or wait for results at once, per subject and in total; further
 * ones are queued and begin in order. The catalog stores its decisions: a session gets its slot together with the id of
 * its first turn, and starting an existing turn again has no effect. So any process may start the turns that another
 * process has admitted and not started, and every turn is started once.
 */
export class SessionQueue {
  readonly #services: QueueServices;
  #running: Promise<void> | undefined;
  #isWoken = false;
  #isStopped = false;

  constructor(services: QueueServices) {
    this.#services = services;
  }

  /**
   * Inserts a session, with a slot or in the queue if it has messages.
   * @throws EngineError `too_many_sessions`; `session_not_found`: the delegating session was deleted
   */
  async create(session: NewSession): Promise<void> {
    const { sessionSlots } = this.#services.catalog;
    const placement = await sessionSlots.create({ ...session, turnId: newId('turn') }, this.#capacity());
    if (placement === 'queue') this.wake();
    if (isRefused(placement)) throw this.#refusal(placement);
    if (placement === 'no_parent') throw new EngineError('session_not_found', 'the session was deleted');
  }

  /**
   * Starts the first turn of a session, if it is to be started; a repetition has no effect. A rejected turn ends the
   * session. @throws EngineError
   */
  async start(sessionId: string): Promise<void> {
    const { catalog } = this.#services;
    const first = await catalog.sessionSlots.firstTurn(sessionId);
    const session = first && (await catalog.sessions.get(sessionId));
    if (!session) return;
    const { turnId, roles, input } = first;
    const caller = { subject: subjectOf(session), roles: rolesIn(roles) };
    try {
      if (!(await hasTurn(this.#services, session, turnId))) await this.#start(session, { turnId, input, caller });
    } catch (error) {
      if (error instanceof EngineError && error.code === 'request_expired') {
        await catalog.sessionSlots.renew(sessionId, turnId, newId('turn'));
        return this.start(sessionId);
      }
      if (error instanceof Superseded) return;
      if (isRejected(error)) {
        const now = new Date().toISOString();
        await catalog.sessionSlots.rejected(sessionId, turnId, { error: errorMessage(error), now });
        this.wake();
      }
      throw error;
    }
    if (await catalog.sessionSlots.started(sessionId, turnId)) return;
    // The session was cancelled while the turn was being started, or another process has started the turn.
    const request = await catalog.sessionRequests.get(sessionId);
    if ((request?.cancelled_at ?? '') >= createdAtOf(turnId)) await cancelTurns(this.#services, session, { turnId });
  }

  /** Requests a turn of a session, which needs a slot unless it is idle. @throws EngineError `too_many_sessions` */
  async admit(turn: RequestedTurn): Promise<void> {
    const placement = await this.#services.catalog.sessionSlots.take(turn, this.#capacity());
    if (isRefused(placement)) throw this.#refusal(placement);
  }

  /**
   * Restarts a session whose first turn was never started, with its messages and those of `request`. False, and without
   * effect, if its first turn was started. @throws EngineError
   */
  async revive(sessionId: string, request: RequestInput): Promise<boolean> {
    const revived = { sessionId, turnId: newId('turn'), request };
    const placement = await this.#services.catalog.sessionSlots.revive(revived, this.#capacity());
    if (placement === undefined) return false;
    if (placement === 'too_many_messages') throw tooManyMessages();
    if (isRefused(placement)) throw this.#refusal(placement);
    await this.start(sessionId);
    return true;
  }

  /** The numbers of slots in total and in use, and the number of sessions that this subject could begin now. */
  async quota(subject: string): Promise<{ limit: number; active: number; available: number }> {
    const capacity = this.#capacity();
    const { active, available } = await this.#services.catalog.sessionSlots.usage(subject, capacity);
    return { limit: capacity.limit, active, available };
  }

  /** Adds messages to a queued session. False if it is not queued. @throws EngineError */
  async buffer(sessionId: string, request: RequestInput): Promise<boolean> {
    const isAdded = await this.#services.catalog.sessionSlots.buffer(sessionId, request, new Date().toISOString());
    if (isAdded === false) throw tooManyMessages();
    return isAdded ?? false;
  }

  /** Cancels a session, also a queued one; with `turnId`, only that one of its turns. @throws EngineError */
  async cancel(session: Pick<SessionRow, 'id'>, turnId?: string): Promise<void> {
    const wasQueued = await this.#services.catalog.sessionSlots.cancel(session.id, new Date().toISOString());
    // A session that was still queued has no turn to cancel.
    if (!wasQueued) await cancelTurns(this.#services, session, { ...(turnId !== undefined && { turnId }) });
    this.wake();
  }

  /** Called when a slot may be free. If the queue is empty, this costs one query by an index. */
  wake(): void {
    if (this.#isStopped) return;
    this.#isWoken = true;
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
      // `wake` was called after the last check of the loop.
      if (this.#isWoken) this.wake();
    });
  }

  /** Starts the sessions that a crashed process has admitted and not started, then the queued ones. */
  async sweep(stop: AbortSignal): Promise<void> {
    for (const sessionId of await this.#services.catalog.sessionSlots.starting()) {
      if (stop.aborted) return;
      await this.#tryToStart(sessionId);
    }
    this.wake();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
  }

  async #run(): Promise<void> {
    const { catalog, log } = this.#services;
    try {
      while (this.#isWoken && !this.#isStopped) {
        this.#isWoken = false;
        const admitted = await catalog.sessionSlots.admit(this.#capacity(), () => newId('turn'));
        // In order. The next sweep starts those that are left after a stop.
        for (const sessionId of admitted) if (!this.#isStopped) await this.#tryToStart(sessionId);
      }
    } catch (error) {
      log.warn({ err: error }, 'the queue of sessions could not be advanced; housekeeping retries it');
    }
  }

  async #tryToStart(sessionId: string): Promise<void> {
    try {
      await this.start(sessionId);
    } catch (error) {
      // Unless the turn was rejected, the next sweep starts it.
      this.#services.log.warn({ sessionId, err: error }, 'the first turn of a session could not be started');
    }
  }

  async #start(
    session: SessionRow,
    { turnId, input, caller }: { turnId: string; input: InputItem[]; caller: Caller },
  ): Promise<void> {
    const { indexed } = await startTurn(this.#services, {
      session,
      caller,
      previous: { turn: 'last' },
      // Another API may have started a turn while the session was queued.
      onRunning: 'queue',
      claim: soleClaim(turnId),
      agent: runnableAgent(this.#services, session, caller),
      loadInput: () => Promise.resolve(input),
      speculation: undefined,
      admit: async (turn) => {
        if (!(await this.#services.catalog.sessionSlots.begin(turn))) throw new Superseded();
      },
      onIndexed: () => undefined,
    });
    await indexed;
  }

  #capacity(): Capacity {
    const { config, limits } = this.#services;
    const limit = config.agentSessions;
    return { limit, perSubject: Math.min(limits().agentSessionsPerSubject, limit), now: new Date() };
  }

  #refusal(refusal: RefusedPlacement): EngineError {
    const capacity = this.#capacity();
    const { message, ...details } = {
      full: {
        type: 'plan_limit',
        scope: 'org',
        message: `${capacity.limit} sessions work or wait, and no more may (EVERTURN_AGENT_SESSIONS): end one, or wait until one has ended`,
      },
      share_full: {
        type: 'plan_limit',
        scope: 'user',
        message:
          `your sessions have the ${capacity.perSubject} slots that one subject may take ` +
          '(EVERTURN_AGENT_SESSIONS_PER_SUBJECT): end one, or wait until one has ended',
      },
      queue_full: {
        type: 'queue_full',
        scope: 'org',
        message: `${MAX_QUEUED_SESSIONS} sessions wait for a slot: wait until some have begun`,
      },
      queue_share_full: {
        type: 'queue_full',
        scope: 'user',
        message:
          `${queuedPerSubject(capacity)} of your sessions wait for a slot, and no more of one subject may ` +
          '(EVERTURN_AGENT_SESSIONS_PER_SUBJECT): cancel some, or wait until some have begun',
      },
    }[refusal];
    return new EngineError('too_many_sessions', message, { details });
  }
}

function tooManyMessages(): EngineError {
  return new EngineError('too_many_messages', 'the session waits, and takes no more messages before it begins');
}
