import { LRUCache } from 'lru-cache';
import { restore, unlessLost } from '../blobs/offload.ts';
import type { GivenConversation } from '../core/given-conversation.ts';
import type { CallModelInput, CallToolInput } from '../core/history.ts';
import { hasSummary } from '../core/compacted.ts';
import { newestAuthor } from '../core/deciders.ts';
import { eventId } from '../core/ids.ts';
import type { CallConstants, ModelCall } from '../core/model-call.ts';
import { turnCreated } from '../core/turn.ts';
import { connectionsReliedOn } from '../core/transcript.ts';
import type { ToolCall } from '../core/records/calls.ts';
import type { UnsequencedRecord } from '../core/records/log.ts';
import { ROOT_THREAD } from '../core/records/threads.ts';
import type { TurnCreated } from '../core/records/turn.ts';
import { hashOf } from '../lib/hash.ts';
import { callHash } from './call-hash.ts';
import { recordsOf } from './ended-turn.ts';
import { restoreRecord } from './restore-records.ts';
import type { RecordSources } from './cached-records.ts';
import type { SpeculativeCall } from './speculation.ts';
import { TurnMemory, type ReadConversation } from './turn-memory.ts';
import { NamedError } from '../lib/errors.ts';

/** The conversation that a client has given with its turn is lost: no placeholder can replace all of it. */
export class ConversationLost extends NamedError {
  constructor() {
    super(
      'the conversation of the request is lost: the blob store of the server no longer has it. Send it again as a new run',
    );
  }
}

/** The fields that determine the conversation of a model call. */
type ExpectedCall = Pick<
  ModelCall,
  'turnId' | 'sessionId' | 'threadId' | 'previousTurnId' | 'runId' | 'upTo' | 'recent'
>;

/** A model call whose conversation is loaded. */
type LoadedCall = CallModelInput & Pick<ModelCall, 'previousTurnId'>;

/** A thread at the end of a chain of turns. */
type ReadThread = Pick<ModelCall, 'sessionId' | 'threadId' | 'previousTurnId'>;

/** The limit of the cache, in characters of JSON. */
const MAX_CACHED_CHARACTERS = 128 * 1024 * 1024;

/**
 * The records behind a model call: the previous turns, and its own turn up to the ordinal that the workflow passes.
 *
 * Activities get references, not transcripts, so each model call has to load its conversation. Usually this worker has
 * it: the results that it produced or received are cached under their stamps, and the workflow passes the stamps that
 * it has accepted. An attempt whose result is not in the history has a different stamp, so what is cached under an
 * accepted stamp equals the log. Everything else is read from the history, backwards from its end.
 */
export class Conversations {
  readonly #sources: RecordSources;
  /** By their ids: the turns that this worker runs, or that have made the calls which it runs. */
  readonly #turns = new LRUCache<string, TurnMemory>({
    maxSize: MAX_CACHED_CHARACTERS,
    sizeCalculation: ({ characters }) => characters,
  });

  constructor(sources: RecordSources) {
    this.#sources = sources;
  }

  /** Caches the result under `stamp` that an activity is about to return, or has returned on a kernel host. */
  remember({ turnId, stamp }: { turnId: string; stamp: string }, records: UnsequencedRecord[]): void {
    const turn = this.#memoryOf(turnId);
    turn.add(stamp, records);
    this.#measure(turnId, turn);
  }

  /** A model call with the constants of its turn and thread, read from the history if this worker lacks them. */
  async call(input: CallModelInput, runId: string): Promise<ModelCall> {
    return { ...input, ...(await this.#with(input.turnId, (turn) => turn.run(runId).constants(input))) };
  }

  /** Caches the results of hosts in the input of a model call: the workflow has accepted them, as in the history. */
  async #rememberOfHosts({ turnId, sessionId, ofHosts = [] }: CallModelInput): Promise<void> {
    for (const { stamp, records } of ofHosts) {
      // A call loads its conversation several times: the texts are read once.
      if (this.#memoryOf(turnId).result(stamp)) continue;
      const restoring = records.map((record, i) => {
        const recordId = 'id' in record ? record.id : `${stamp}/${i}`;
        return restoreRecord(record, { ...this.#source(sessionId), turnId, recordId });
      });
      this.remember({ turnId, stamp }, await Promise.all(restoring));
    }
  }

  /** The constants of the model calls of the thread that has made a tool call. */
  constants(call: Pick<CallToolInput, 'turnId' | 'sessionId' | 'threadId'>, runId: string): Promise<CallConstants> {
    return this.#with(call.turnId, (turn) => turn.run(runId).constants(call));
  }

  /** All records that a model call answers, oldest first: from the turn on in which its thread was last summarized. */
  async load(call: LoadedCall, runId: string, signal: AbortSignal): Promise<UnsequencedRecord[]> {
    await this.#rememberOfHosts(call);
    return this.#with(call.turnId, async (turn) =>
      this.#withPrevious(await turn.run(runId).upTo(call), { thread: call, turn, signal }),
    );
  }

  /**
   * The author of the newest user message on the chain of a turn, which may be older than the model call's
   * conversation: the thread was summarized since. Undefined if no stored turn of the chain has one.
   */
  async newestAuthor(call: LoadedCall, runId: string, signal: AbortSignal): Promise<string | undefined> {
    const { previousTurnId, sessionId } = call;
    const author = newestAuthor(await this.#with(call.turnId, (turn) => turn.run(runId).upTo(call)));
    if (author !== undefined || previousTurnId === null) return author;
    for await (const { entries } of this.#sources.logs.chain(previousTurnId, signal)) {
      const records = recordsOf(entries);
      assertOfSession(records, sessionId);
      const earlier = newestAuthor(records);
      if (earlier !== undefined) return earlier;
    }
    return undefined;
  }

  /**
   * The conversation of a model call if the history accepts the results `recent`; undefined unless this worker has the
   * turn in memory up to them. Nothing is cached, because the history may accept others.
   */
  ahead(call: ExpectedCall, signal: AbortSignal): Promise<UnsequencedRecord[]> | undefined {
    const turn = this.#turns.get(call.turnId);
    const own = turn?.known(call.runId)?.ahead(call);
    return turn && own && this.#withPrevious(own, { thread: call, turn, signal });
  }

  /** The records of a turn's first model call, if the turn starts like this. Waits until turn `after` ends. */
  async beginning(start: Omit<SpeculativeCall, 'trace'>, signal: AbortSignal): Promise<UnsequencedRecord[]> {
    const { turnId, sessionId, previousTurnId, after } = start;
    const [before, created, ended] = await Promise.all([
      this.#chain({ previousTurnId, sessionId, threadId: ROOT_THREAD }, signal),
      restoreRecord(turnCreated(start), { ...this.#source(sessionId), turnId, recordId: eventId(turnId, 1) }),
      // A turn notifies its session before it closes: `ended` waits for its last records.
      after === null ? [] : this.#sources.logs.ended(after, signal),
    ]);
    assertOfSession(recordsOf(ended), sessionId);
    return [...before, created];
  }

  /**
   * The tool call that an activity is to run, with the arguments that were approved. It is from the accepted attempt at
   * its message: other attempts have the same message id, and may call other tools.
   * @throws Error if it is not the call that was scheduled, and approved if it required approval
   */
  async toolCall({
    source,
    sessionId,
    edited,
    runId,
  }: Pick<CallToolInput, 'source' | 'sessionId' | 'edited' | 'runId'>): Promise<ToolCall> {
    const { turnId, messageId, stamp, index, run } = source;
    const message = await this.#with(turnId, (turn) => {
      // A result of a kernel host may have several messages.
      const made = turn.result(stamp)?.find((record) => record.kind === 'model.message' && record.id === messageId);
      if (made?.kind === 'model.message') return made;
      const read = turn.known(runId)?.message(messageId);
      if (read) return restoreRecord(read, { ...this.#source(sessionId), turnId, recordId: messageId });
      return turn.messages.get(stamp, () => this.#sources.logs.message({ sessionId, turnId, messageId }));
    });
    const call = message?.toolCalls[index];
    if (!call || callHash(call) !== run?.callHash) throw new Error('the tool call is not the one that was decided on');
    if (!edited) return call;
    const { arguments: text } = await restore(edited, { blobs: this.#sources.blobs, sessionId });
    if (hashOf(JSON.parse(text)) !== edited.hash) throw new Error('the arguments are not those that were approved');
    return { ...call, arguments: text };
  }

  /**
   * The connections on which a call to a server relies: see `connectionsReliedOn`. Records before the last summary of
   * its thread are not read: the summary names the connections until then.
   */
  async reliedOn(
    call: Pick<CallToolInput, 'turnId' | 'sessionId' | 'threadId' | 'runId' | 'source'>,
    serverId: string,
    signal: AbortSignal,
  ): Promise<Set<string>> {
    const { threadId, source } = call;
    return connectionsReliedOn(await this.soFar(call, signal), { threadId, messageId: source.messageId, serverId });
  }

  /**
   * The records of a turn, and of those before it: from the last one on that has a summary of the thread, or all with
   * `isWhole`.
   */
  async soFar(
    call: Pick<CallToolInput, 'turnId' | 'sessionId' | 'threadId' | 'runId'>,
    signal: AbortSignal,
    { isWhole = false } = {},
  ): Promise<UnsequencedRecord[]> {
    const { turnId, sessionId, threadId, runId } = call;
    // The texts of the turn in progress are not needed here.
    const own = await this.#with(turnId, (turn) => turn.run(runId).soFar(call));
    assertOfSession(own, sessionId);
    const previousTurnId = createdIn(own)?.previousTurnId ?? null;
    const thread = { previousTurnId, sessionId, threadId };
    const isBegin = !isWhole && hasSummary(own, threadId);
    return isBegin ? own : [...(await this.#chain(thread, signal, isWhole)), ...own];
  }

  async #withPrevious(
    own: UnsequencedRecord[],
    { thread, turn, signal }: { thread: ReadThread; turn: TurnMemory; signal: AbortSignal },
  ): Promise<UnsequencedRecord[]> {
    if (hasSummary(own, thread.threadId)) return own;
    const [created, ...rest] = own;
    if (created?.kind !== 'turn.created' || !created.conversation)
      return [...(await this.#chain(thread, signal)), ...own];
    const { conversation } = created;
    const { blob } = conversation;
    const read = await turn.given.get(blob, () => this.#readGiven(thread.sessionId, blob));
    return [{ ...created, conversation: { ...conversation, ...(read && { given: read.given }) } }, ...rest];
  }

  async #readGiven(sessionId: string, blob: string): Promise<ReadConversation> {
    const json = (await unlessLost(this.#sources.blobs.get(sessionId, blob)))?.toString();
    if (json === undefined) throw new ConversationLost();
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the face that has taken the request
    return { given: JSON.parse(json) as GivenConversation, characters: json.length };
  }

  /**
   * The previous turns of a chain, from the last one on that has a summary of a thread, or all.
   * @throws Error if one belongs to another session, which may have other readers
   */
  async #chain(
    { previousTurnId, sessionId, threadId }: ReadThread,
    signal: AbortSignal,
    isWhole = false,
  ): Promise<UnsequencedRecord[]> {
    const turns: UnsequencedRecord[][] = [];
    if (previousTurnId === null) return [];
    for await (const { entries } of this.#sources.logs.chain(previousTurnId, signal)) {
      // A turn that an operator has deleted is left out of the conversation.
      const records = recordsOf(entries);
      assertOfSession(records, sessionId);
      turns.push(records);
      if (!isWhole && hasSummary(records, threadId)) break;
    }
    return turns.reverse().flat();
  }

  /** Calls `use` with the memory of a turn, to which it may add, and measures that again. */
  async #with<T>(turnId: string, use: (turn: TurnMemory) => T | Promise<T>): Promise<T> {
    const turn = this.#memoryOf(turnId);
    try {
      return await use(turn);
    } finally {
      this.#measure(turnId, turn);
    }
  }

  #memoryOf(turnId: string): TurnMemory {
    const turn = this.#turns.get(turnId) ?? new TurnMemory(this.#sources);
    this.#turns.set(turnId, turn);
    return turn;
  }

  /** The cache measures an entry when it is added. An evicted entry does not replace its successor. */
  #measure(turnId: string, turn: TurnMemory): void {
    const current = this.#turns.peek(turnId);
    if (current && current !== turn) return;
    this.#turns.delete(turnId);
    this.#turns.set(turnId, turn);
  }

  #source(sessionId: string) {
    const { blobs, losses } = this.#sources;
    return { blobs, losses, sessionId };
  }
}

/** @throws Error if the records belong to another session's turn */
function assertOfSession(records: UnsequencedRecord[], sessionId: string): void {
  const created = createdIn(records);
  if (created && created.sessionId !== sessionId) {
    throw new Error(`turn ${created.turnId} is not of session ${sessionId}`);
  }
}

/** The first record of a turn. */
function createdIn([first]: UnsequencedRecord[]): Omit<TurnCreated, 'id'> | undefined {
  return first?.kind === 'turn.created' ? first : undefined;
}
