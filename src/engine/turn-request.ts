import { setTimeout as sleep } from 'node:timers/promises';
import type { Caller } from '../core/subject.ts';
import type { SessionRow, TurnRow } from '../catalog/schema.ts';
import { isId } from '../core/ids.ts';
import type { InputItem } from '../core/records/input.ts';
import type { OnRunning } from '../core/session.ts';
import { addLogContext } from '../telemetry/log-context.ts';
import { hasTurn, isTurnOf } from './access.ts';
import type { Engine } from './engine.ts';
import { newId } from './new-id.ts';
import { claimRequest, isClaimed, withClaim, type RequestIdentity } from './request-claims.ts';
import type { ExpectedTurn, Speculation } from './speculation.ts';
import {
  createdAtOf,
  MAX_INPUT_BYTES,
  onRunningOf,
  ownerOf,
  runnableAgent,
  startTurn,
  type PreviousTurn,
  type StartedTurn,
  type TurnToStart,
} from './start-turn.ts';
import { steerTurn } from './steer-turn.ts';
import { inputFiles } from './store-input.ts';

interface TurnRequestOptions {
  sessionId: string;
  caller: Caller;
  /** The client's idempotency key. */
  key: string | undefined;
  /** Equal for equal requests. */
  bodyHash: string;
  previous: PreviousTurn;
  /** Undefined: as configured in the agent. */
  onRunning: OnRunning | undefined;
  /** Whether the input resolves pending tool calls; otherwise the turn starts with a model call. */
  answersCalls: boolean;
}

interface ClaimOptions {
  /** From `authorizeSession`: the caller has the right to start this turn. */
  session: SessionRow;
  /** The input, or a function that loads it if that takes time. Files are inline. @throws EngineError */
  input: InputItem[] | (() => Promise<InputItem[]>);
  /** The error that rejects the request if it exceeds the caller's rate limit and is not a repetition. */
  rateLimitError: Error | undefined;
  /** The session waits for a slot, and keeps the input until it begins: the limits on turns do not apply. */
  isWaiting?: boolean;
}

/** The entries of the index about the turns that a new one follows, before its session decides. */
interface SpeculationInput {
  /** The newest turn of the session. */
  last: TurnRow | undefined;
  previousTurnId: string | null;
}

/**
 * A request for a turn. It reserves the speculative call of the caller's requests on the session, and reads the index
 * while the face checks the caller's rights and the input. Until these are checked, it reads no conversation and sends
 * nothing out. Disposing of it withdraws a speculative call whose turn was not accepted.
 */
export class TurnRequest implements Disposable {
  readonly #engine: Engine;
  readonly #options: TurnRequestOptions;
  readonly #identity: RequestIdentity;
  readonly #speculation: Speculation | undefined;
  readonly #speculationInput: Promise<SpeculationInput | undefined>;

  constructor(engine: Engine, options: TurnRequestOptions) {
    const { caller, sessionId, key, bodyHash, answersCalls, onRunning } = options;
    const scope = `${caller.subject.subjectId}/turns/${sessionId}`;
    this.#engine = engine;
    this.#options = options;
    this.#identity = { catalog: engine.catalog, scope, key, bodyHash };
    this.#speculation = answersCalls || onRunning === 'steer' ? undefined : engine.speculator.reserve(scope);
    this.#speculationInput = this.#speculation ? this.#loadSpeculationInput() : Promise.resolve(undefined);
  }

  /**
   * Admits the request and claims its turn. If it is a repetition, the claim is on the first request's turn. If the
   * request is valid, its model call may start here, before anything of the turn is written.
   * @throws EngineError `idempotency_key_reused` or `too_many_turns`, or `rateLimitError`
   */
  async claim({ session, input, rateLimitError, isWaiting = false }: ClaimOptions): Promise<ClaimedTurn> {
    const { caller, previous, onRunning, sessionId } = this.#options;
    const speculation = this.#speculation;
    const endAdmission = await this.#admit(session, { rateLimitError, isWaiting });
    try {
      const resourceId = newId('turn');
      const agent = runnableAgent(this.#engine, session, caller);
      // If the agent cannot run, `startTurn` reports it.
      const mayBegin = agent.then(
        ({ spec }) => onRunningOf(onRunning, spec) !== 'steer',
        () => false,
      );
      const expected = await this.#expectedTurn(resourceId, session);
      if (expected) speculation?.expect(expected);
      if ((await mayBegin) && speculation && isSmallText(input)) {
        speculation.offer(input);
        // Commits to SQLite block the process: yield, so that the model's request is sent before them.
        await sleep(1);
      }
      if (!speculation) await this.#engine.speculator.whenClaimed(this.#identity.scope);
      const claim = await claimRequest({ ...this.#identity, resourceId, sessionId });
      speculation?.claimed();
      if (!claim.isNew) speculation?.withdraw();
      addLogContext({ turnId: claim.resourceId });
      let loaded: Promise<InputItem[]> | undefined;
      const loadInput = () => (loaded ??= typeof input === 'function' ? input() : Promise.resolve(input));
      return new ClaimedTurn(this.#engine, {
        session,
        caller,
        previous,
        onRunning,
        claim,
        agent,
        loadInput,
        speculation,
        onIndexed: endAdmission,
      });
    } catch (error) {
      endAdmission();
      throw error;
    }
  }

  [Symbol.dispose](): void {
    this.#speculation?.withdraw();
  }

  /**
   * Admits the request if there is capacity. A repetition is always admitted: its turn may be running, so the client
   * must not get an error that means a rejection.
   */
  async #admit(
    session: SessionRow,
    { rateLimitError, isWaiting }: { rateLimitError: Error | undefined; isWaiting: boolean },
  ): Promise<() => void> {
    try {
      if (rateLimitError) throw rateLimitError;
      if (isWaiting) return () => undefined;
      return await this.#engine.turnLimits.admit(session);
    } catch (error) {
      if (await isClaimed(this.#identity)) return () => undefined;
      throw error;
    }
  }

  /**
   * What the turn will follow, according to the index. Undefined if the request may be a repetition, or names a turn
   * that the index does not have in this session: that turn may be another subject's. Undefined also while another
   * request is not in the index as a turn: it may have become one that this turn follows, or that waits in the queue
   * before it. Never rejects.
   */
  async #loadSpeculationInput(): Promise<SpeculationInput | undefined> {
    const { catalog, log } = this.#engine;
    const { sessionId, previous } = this.#options;
    try {
      const [isRepetition, requests, last, named] = await Promise.all([
        isClaimed(this.#identity),
        catalog.turns.requests(sessionId),
        catalog.turns.last(sessionId),
        previous.turn === 'id' && isId(previous.turnId) ? catalog.turns.get(previous.turnId) : undefined,
      ]);
      if (isRepetition || requests.length > 0) return undefined;
      if (previous.turn === 'last') return { last, previousTurnId: last?.id ?? null };
      if (previous.turn === 'none') return { last, previousTurnId: null };
      return isTurnOf({ id: sessionId }, named) ? { last, previousTurnId: previous.turnId } : undefined;
    } catch (error) {
      log.debug({ sessionId, err: error }, 'a turn gets no speculative call');
      return undefined;
    }
  }

  async #expectedTurn(turnId: string, session: SessionRow): Promise<ExpectedTurn | undefined> {
    const speculationInput = await this.#speculationInput;
    if (!speculationInput) return undefined;
    const { last, previousTurnId } = speculationInput;
    const { caller } = this.#options;
    return {
      turnId,
      sessionId: session.id,
      sequence: (last?.sequence ?? 0) + 1,
      previousTurnId,
      after: last?.id ?? null,
      createdAt: createdAtOf(turnId),
      createdBy: caller.subject,
      owner: ownerOf(session, caller),
      specHash: session.spec_hash,
    };
  }
}

/** Whether nothing of an input has to be stored before its turn starts. */
function isSmallText(input: ClaimOptions['input']): input is InputItem[] {
  if (typeof input === 'function') return false;
  return inputFiles(input).length === 0 && Buffer.byteLength(JSON.stringify(input)) <= MAX_INPUT_BYTES;
}

/**
 * The turn that a request has claimed, until the response is sent. Disposing of it without an acknowledgement marks the
 * response as lost: an equal request within the next seconds is then a repetition.
 */
export class ClaimedTurn implements AsyncDisposable {
  readonly turnId: string;
  readonly #engine: Engine;
  readonly #turn: TurnToStart;
  #indexed: Promise<void> | undefined;
  #isAcknowledged = false;

  constructor(engine: Engine, turn: TurnToStart) {
    this.turnId = turn.claim.resourceId;
    this.#engine = engine;
    this.#turn = turn;
  }

  /**
   * Offers the input to `keep`, with an id that is equal for equal requests, instead of starting a turn. False if
   * `keep` declines it. @throws EngineError
   */
  async keep(keep: (requestId: string, loadInput: () => Promise<InputItem[]>) => Promise<boolean>): Promise<boolean> {
    const { claim, loadInput } = this.#turn;
    return withClaim(claim, () => keep(this.turnId, loadInput));
  }

  /**
   * Sends the input, which consists of messages, to the running turn, if the request or the agent wants that. Returns
   * the id of that turn; undefined if a turn is to be started. @throws EngineError
   */
  async steer(): Promise<string | undefined> {
    const { session, caller, previous, claim, onRunning, agent, loadInput } = this.#turn;
    return withClaim(claim, async () => {
      // A turn that exists is returned even if it would be rejected now.
      if (!claim.isNew && (await hasTurn(this.#engine, session, this.turnId))) return undefined;
      const wanted = onRunning ?? onRunningOf(undefined, (await agent).spec);
      if (wanted !== 'steer') return undefined;
      const isRepetition = !claim.isNew;
      return steerTurn(this.#engine, { session, caller, previous, commandId: this.turnId, isRepetition, loadInput });
    });
  }

  /**
   * Starts the turn, or puts it into the queue of its session; undefined if an equal request has done so. `admit` and
   * `rounds`: see `TurnToStart`.
   * @throws EngineError
   */
  async start({ admit, rounds }: Pick<TurnToStart, 'admit' | 'rounds'> = {}): Promise<
    Omit<StartedTurn, 'indexed'> | undefined
  > {
    const { claim, session } = this.#turn;
    // A turn that exists is returned even if it would be rejected now.
    if (!claim.isNew && (await hasTurn(this.#engine, session, this.turnId))) return undefined;
    const started = await startTurn(this.#engine, { ...this.#turn, admit, rounds });
    this.#indexed = started.indexed;
    return started;
  }

  /** Settles when the turn that was started is in the index, so that every route finds it. Never rejects. */
  async whenIndexed(): Promise<void> {
    await this.#indexed;
  }

  /** The response was handed to the network. */
  acknowledge(): void {
    this.#isAcknowledged = true;
    this.#turn.claim.delivered().catch((error: unknown) => this.#warn(error));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#turn.onIndexed();
    await this.#indexed;
    if (!this.#isAcknowledged) await this.#turn.claim.lost().catch((error: unknown) => this.#warn(error));
  }

  /** Without this note, an equal request within the next seconds may be mistaken for a repetition, or for a new one. */
  #warn(error: unknown): void {
    this.#engine.log.warn({ turnId: this.turnId, err: error }, "the delivery of a turn's answer could not be recorded");
  }
}
