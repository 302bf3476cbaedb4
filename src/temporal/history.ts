import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection } from '@temporalio/client';
import type { LoadedDataConverter, Payload, PayloadCodec, SerializationContext } from '@temporalio/common';
import { decode, decodeArrayFromPayloads } from './sdk-internals.ts';
import type { temporal } from '@temporalio/proto';
import {
  APPENDING_ACTIVITIES,
  type ActivityResult,
  type CallModelResult,
  type CallToolResult,
  type HistoryEvent,
  type OpenSandboxResult,
  type ResumeCellResult,
  type ScheduledActivity,
  type TurnResult,
  type TurnStart,
  type WorkflowClose,
} from '../core/history.ts';
import type { BeginFacts, EndFacts } from '../core/attempts.ts';
import { currentStart } from '../core/earlier-start.ts';
import type { CancelReason } from '../core/records/turn.ts';
import type { TurnCommand } from '../core/turn-command.ts';
import {
  CANCEL_TURN,
  OLD_RULES,
  REFUSED,
  sessionWorkflowId,
  TURN_COMMAND,
  turnWorkflowId,
} from '../core/temporal-names.ts';
import { linkSignal } from '../lib/abort.ts';
import { classOf, failureMessage } from './data-converter.ts';
import { isNotFound } from './errors.ts';
import type { ReportedAttempts } from './own-attempts.ts';

type RawEvent = temporal.api.history.v1.IHistoryEvent;

/** A part of a run's history. */
export interface HistoryPage {
  /** The events that are relevant to the log. */
  events: HistoryEvent[];
  /** The id of the page's last event, relevant or not. */
  lastEventId: number;
}

/** How a history is read. */
export interface FollowOptions {
  /** Waits for further events until the run ends, or the signal is aborted, which throws. */
  follow?: AbortSignal | undefined;
  /** Decides when a reader that follows reads the next page; default: after a short pause. */
  pace?: { next: () => Promise<void> } | undefined;
}

interface ReadOptions extends FollowOptions {
  /** Default: the turn's current or last run. */
  runId?: string | undefined;
  /** Events up to this id are omitted. */
  after?: number;
}

interface HistoryOptions {
  connection: Connection;
  namespace: string;
  converter: LoadedDataConverter;
  /** The codecs of workers, which refuse what is not from a client with the encryption keys. Default: the converter's. */
  commandCodecs?: PayloadCodec[];
}

interface PageRequest extends Omit<ReadOptions, 'pace'> {
  turnId: string;
  token?: Uint8Array | undefined;
  pageSize: number;
}

interface Page extends HistoryPage {
  /** Undefined at the end of a closed run, and at the current end if the reader does not follow. */
  next: Uint8Array | undefined;
  /** Set at the point to which an operator has reset the run: the id of the run that was reset. */
  resetRunId: string | undefined;
}

/** Events per page. With payloads of 128 KiB a page stays far below the limit of a gRPC message. */
const PAGE_SIZE = 250;

/** A page of history may hold several hundred payloads of 128 KiB; gRPC's default limit is 4 MiB. */
export const GRPC_CHANNEL_ARGS = { 'grpc.max_receive_message_length': 128 * 1024 * 1024 };

/** Events per page when reading backwards. Mostly the relevant ones are at the end: those of the last step are fewer than 20. */
const FIRST_REVERSE_PAGE_SIZE = 20;
const REVERSE_PAGE_SIZE = 50;

/** The pause between two polls of a reader that follows, if it has no pace of its own. */
const POLL_INTERVAL_MS = 10;

/** The server responds to a long poll within 20 s; a poll that takes longer than this was lost. */
const LONG_POLL_DEADLINE_MS = 40_000;

/**
 * Reads the histories of turn workflows in the form that `Turn` expects. Only this class decodes raw history:
 * the client does not, and payloads may have to pass through a codec.
 */
export class TurnHistory {
  readonly #options: HistoryOptions;

  constructor(options: HistoryOptions) {
    this.#options = options;
  }

  /**
   * Reads the events of a run, oldest first: the current ones, and with `follow` also further ones.
   *
   * A reset by an operator ends a turn, because what readers have seen and tools have done cannot be undone. So a run
   * that results from a reset is read as the run that was reset, with which it shares its first events, and so are the
   * runs that it continues as.
   */
  async *read(turnId: string, options: ReadOptions = {}): AsyncGenerator<HistoryPage> {
    const { runId, follow, after = 0, pace } = options;
    for (let page: Page | undefined; !page || page.next;) {
      if (page && follow) await (pace?.next() ?? sleep(POLL_INTERVAL_MS, undefined, { signal: follow }));
      page = await this.#page({ turnId, runId, token: page?.next, pageSize: PAGE_SIZE, follow, after });
      const [first] = page.events;
      if (first?.type === 'started' && first.start.resetRunId !== undefined) {
        yield* this.read(turnId, { ...options, runId: first.start.resetRunId });
        return;
      }
      yield page;
      if (page.resetRunId) yield* this.read(turnId, { ...options, runId: page.resetRunId, after: page.lastEventId });
    }
  }

  /**
   * Reads the events of a run after event `after`, from the end, so that the cost depends on the new events only.
   */
  async readSince(turnId: string, runId: string, after: number, pageSize?: number): Promise<HistoryPage> {
    const raw: RawEvent[] = [];
    let token: Uint8Array | undefined;
    do {
      const response = await this.#reverse(turnId, { runId, pageSize, token });
      raw.push(...(response.history?.events ?? []));
      token = response.nextPageToken;
    } while (token.length > 0 && Number(raw.at(-1)?.eventId) > after + 1);
    return this.#decodePage(turnId, raw.filter((event) => Number(event.eventId) > after).reverse(), after);
  }

  /** Reads the events of a turn's current or last run in batches from the end; each batch is in order. */
  async *readBackwards(turnId: string): AsyncGenerator<HistoryEvent[]> {
    let token: Uint8Array | undefined;
    do {
      const response = await this.#reverse(turnId, { token });
      const raw = response.history?.events ?? [];
      yield (await this.#decodePage(turnId, raw.reverse(), 0)).events;
      token = response.nextPageToken;
    } while (token.length > 0);
  }

  /** The input of a turn, from the first event of its current run or of `runId`. */
  async start(turnId: string, runId?: string): Promise<TurnStart> {
    const { events } = await this.#page({ turnId, runId, pageSize: 1 });
    const [first] = events;
    if (first?.type !== 'started') throw new Error(`the history of turn ${turnId} does not begin with its start`);
    return first.start;
  }

  /** How a turn's workflow closed; undefined while it is running. */
  async close(turnId: string): Promise<WorkflowClose | undefined> {
    const { history } = await this.#reverse(turnId, { pageSize: 1 });
    const { events } = await this.#decodePage(turnId, history?.events ?? [], 0);
    const [last] = events;
    return last?.type === 'closed' ? last.close : undefined;
  }

  /**
   * Whether a session is about to start, or runs, a turn. The session accepts a turn and orders the start of its workflow
   * in one commit, so a turn that was accepted and is not found is among the session's pending children until it starts.
   */
  async isStarting(turnId: string, sessionId: string): Promise<boolean> {
    const { connection, namespace } = this.#options;
    const request = { namespace, execution: { workflowId: sessionWorkflowId(sessionId) } };
    try {
      const service = connection.workflowService;
      const { pendingChildren } = await this.#bounded(() => service.describeWorkflowExecution(request));
      return pendingChildren.some(({ workflowId }) => workflowId === turnWorkflowId(turnId));
    } catch (error) {
      if (isNotFound(error)) return false;
      throw error;
    }
  }

  #reverse(
    turnId: string,
    {
      runId,
      token,
      pageSize = token ? REVERSE_PAGE_SIZE : FIRST_REVERSE_PAGE_SIZE,
    }: { runId?: string; pageSize?: number | undefined; token?: Uint8Array | undefined },
  ) {
    const { connection, namespace } = this.#options;
    return this.#bounded(() =>
      connection.workflowService.getWorkflowExecutionHistoryReverse({
        namespace,
        execution: { workflowId: turnWorkflowId(turnId), ...(runId && { runId }) },
        maximumPageSize: pageSize,
        ...(token && { nextPageToken: token }),
      }),
    );
  }

  #bounded<T>(request: () => Promise<T>): Promise<T> {
    return this.#options.connection.withDeadline(Date.now() + LONG_POLL_DEADLINE_MS, request);
  }

  async #page({ turnId, runId, token, pageSize, follow, after = 0 }: PageRequest): Promise<Page> {
    const { connection, namespace } = this.#options;
    const request = () =>
      connection.workflowService.getWorkflowExecutionHistory({
        namespace,
        execution: { workflowId: turnWorkflowId(turnId), ...(runId && { runId }) },
        maximumPageSize: pageSize,
        waitNewEvent: follow !== undefined,
        ...(token && { nextPageToken: token }),
      });
    const response = await (follow ? this.#until(follow, () => this.#bounded(request)) : this.#bounded(request));
    const raw = response.history?.events ?? [];
    const reset = raw.findIndex((event) => event.workflowTaskFailedEventAttributes?.baseRunId);
    const own = reset < 0 ? raw : raw.slice(0, reset);
    const page = await this.#decodePage(
      turnId,
      own.filter((event) => Number(event.eventId) > after),
      reset < 0 ? after : Number(raw[reset]?.eventId) - 1,
    );
    const resetRunId = raw[reset]?.workflowTaskFailedEventAttributes?.baseRunId ?? undefined;
    const isLast = resetRunId !== undefined || response.nextPageToken.length === 0;
    return { ...page, resetRunId, next: isLast ? undefined : response.nextPageToken };
  }

  /** Passes the client a new signal per request, because the client never removes its listener from a signal. */
  async #until<T>(stop: AbortSignal, request: () => Promise<T>): Promise<T> {
    const controller = new AbortController();
    const unlink = linkSignal(stop, controller);
    try {
      return await this.#options.connection.withAbortSignal(controller.signal, request);
    } finally {
      unlink();
    }
  }

  async #decodePage(turnId: string, raw: RawEvent[], after: number): Promise<HistoryPage> {
    const decoder = new EventDecoder(this.#options, turnWorkflowId(turnId));
    const decoded = await Promise.all(raw.map((event) => decoder.decode(event)));
    return {
      events: decoded.filter((event) => event !== undefined),
      lastEventId: Number(raw.at(-1)?.eventId ?? after),
    };
  }
}

/** `TIMEOUT_TYPE_SCHEDULE_TO_START` of Temporal's API. */
const SCHEDULE_TO_START = 2;

const OLD_TURN = 'An earlier version of the server began the turn, and a start with --end-old-turns ended it.';

/** Decodes the events of one workflow. */
class EventDecoder {
  readonly #converter: LoadedDataConverter;
  readonly #commandCodecs: PayloadCodec[];
  readonly #own: SerializationContext;
  readonly #ofActivity: SerializationContext;

  constructor({ namespace, converter, commandCodecs = converter.payloadCodecs }: HistoryOptions, workflowId: string) {
    this.#converter = converter;
    this.#commandCodecs = commandCodecs;
    this.#own = { type: 'workflow', namespace, workflowId };
    this.#ofActivity = { type: 'activity', isLocal: false, namespace, workflowId };
  }

  async decode(event: RawEvent): Promise<HistoryEvent | undefined> {
    const at = isoTime(event.eventTime);
    const started = event.workflowExecutionStartedEventAttributes;
    if (started) {
      const { originalExecutionRunId: runId } = started;
      return {
        type: 'started',
        at,
        start: currentStart(await this.#first<TurnStart>(started.input?.payloads)),
        ...(runId && { runId }),
      };
    }
    const scheduled = event.activityTaskScheduledEventAttributes;
    if (scheduled) {
      const name = APPENDING_ACTIVITIES.find((one) => one === scheduled.activityType?.name);
      if (!name) return undefined;
      const input = await this.#first<ScheduledActivity['input']>(scheduled.input?.payloads, this.#ofActivity);
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the turn workflow; the name decides the type
      const activity = { name, input } as ScheduledActivity;
      const { activityId } = scheduled;
      return { type: 'scheduled', eventId: Number(event.eventId), ...(activityId && { activityId }), at, activity };
    }
    const begun = event.activityTaskStartedEventAttributes;
    if (begun) {
      const { scheduledEventId, attempt, identity, lastFailure } = begun;
      const facts: BeginFacts = {
        number: attempt ?? 1,
        at,
        ...(identity && { worker: identity }),
        ...(lastFailure && { before: { isLost: Boolean(lastFailure.timeoutFailureInfo), ...classOf(lastFailure) } }),
      };
      return { type: 'begun', scheduledEventId: Number(scheduledEventId), facts };
    }
    const end = await this.#activityEnd(event);
    if (end) return { type: 'ended', at, ...end };
    if (event.workflowTaskStartedEventAttributes) return { type: 'taskStarted', at };
    if (event.workflowTaskCompletedEventAttributes) return { type: 'taskCompleted' };
    const signaled = event.workflowExecutionSignaledEventAttributes;
    if (signaled) {
      const payloads = signaled.input?.payloads ?? [];
      if (signaled.signalName === TURN_COMMAND) {
        const command = await this.#sent<TurnCommand>(payloads);
        return command && { type: 'commanded', command };
      }
      if (signaled.signalName !== CANCEL_TURN) return undefined;
      const reason = await this.#sent<CancelReason>(payloads);
      // The turn ignores a time-out while it is paused.
      const isCancelled = reason !== undefined && reason !== 'server-execution-timeout';
      return isCancelled ? { type: 'commanded', command: { type: 'cancelled' } } : undefined;
    }
    const continued = event.workflowExecutionContinuedAsNewEventAttributes;
    if (continued) return { type: 'continued', at, runId: continued.newExecutionRunId ?? '' };
    const close = await this.#close(event);
    return close && { type: 'closed', at, close };
  }

  /** What a signal sends. Undefined if workers refuse it, and so drop the signal: see `workflows/refused-payloads.ts`. */
  async #sent<T>(payloads: Payload[]): Promise<T | undefined> {
    const [payload] = await decode(this.#commandCodecs, payloads, this.#own);
    const encoding = Buffer.from(payload?.metadata?.['encoding'] ?? []).toString();
    if (!payload || encoding.startsWith(REFUSED)) return undefined;
    return this.#converter.payloadConverter.fromPayload<T>(payload);
  }

  async #activityEnd(
    event: RawEvent,
  ): Promise<{ scheduledEventId: number; end: ActivityResult; facts: EndFacts } | undefined> {
    const completed = event.activityTaskCompletedEventAttributes;
    if (completed) {
      const result = await this.#first<
        Partial<CallToolResult & CallModelResult & OpenSandboxResult & ResumeCellResult> | undefined
      >(completed.result?.payloads, this.#ofActivity);
      const { attempts, records = [], stamp = '', ...rest } = result ?? {};
      const facts: EndFacts = { outcome: 'completed', ...(attempts && { reported: attempts }) };
      const end: ActivityResult = { ...rest, how: 'completed', records, stamp };
      return { scheduledEventId: Number(completed.scheduledEventId), end, facts };
    }
    const failed = event.activityTaskFailedEventAttributes;
    if (failed) {
      const message = await failureMessage(this.#converter, failed.failure);
      const facts: EndFacts = {
        outcome: 'failed',
        ...classOf(failed.failure),
        ...(await this.#reported(failed.failure?.applicationFailureInfo?.details)),
      };
      return { scheduledEventId: Number(failed.scheduledEventId), end: { how: 'failed', message }, facts };
    }
    const timedOut = event.activityTaskTimedOutEventAttributes;
    if (timedOut) {
      const reported = await this.#reported(timedOut.failure?.timeoutFailureInfo?.lastHeartbeatDetails);
      const facts: EndFacts = { outcome: 'lost', ...reported };
      const end: ActivityResult = { how: 'timed_out', ...(isUnstarted(timedOut.failure) && { isUnstarted: true }) };
      return { scheduledEventId: Number(timedOut.scheduledEventId), end, facts };
    }
    const canceled = event.activityTaskCanceledEventAttributes;
    if (canceled) {
      const started = Number(canceled.startedEventId ?? 0) > 0;
      const end: ActivityResult = { how: 'cancelled', started };
      return { scheduledEventId: Number(canceled.scheduledEventId), end, facts: { outcome: 'cancelled' } };
    }
    return undefined;
  }

  /** The attempts that an activity has reported in its heartbeats, or with its failure. */
  async #reported(details: { payloads?: Payload[] | null } | null | undefined): Promise<Pick<EndFacts, 'reported'>> {
    const { attempts } = (await this.#first<ReportedAttempts | undefined>(details?.payloads, this.#ofActivity)) ?? {};
    return attempts ? { reported: attempts } : {};
  }

  async #close(event: RawEvent): Promise<WorkflowClose | undefined> {
    const completed = event.workflowExecutionCompletedEventAttributes;
    if (completed) return { how: 'completed', result: await this.#first<TurnResult>(completed.result?.payloads) };
    const failed = event.workflowExecutionFailedEventAttributes;
    if (failed) return { how: 'failed', message: await failureMessage(this.#converter, failed.failure) };
    if (event.workflowExecutionTimedOutEventAttributes) return { how: 'timed_out' };
    const terminated = event.workflowExecutionTerminatedEventAttributes;
    if (terminated) {
      // `terminateWorkflow` passes the reason as details; an operator's terminate has none.
      const reason = await this.#first<CancelReason | typeof OLD_RULES | undefined>(terminated.details?.payloads);
      if (reason === OLD_RULES) return { how: 'failed', message: OLD_TURN };
      return { how: 'terminated', reason: reason ?? 'abandoned' };
    }
    if (event.workflowExecutionCanceledEventAttributes) return { how: 'terminated', reason: 'abandoned' };
    return undefined;
  }

  async #first<T>(payloads: Payload[] | null | undefined, context = this.#own): Promise<T> {
    const [value] = await decodeArrayFromPayloads(this.#converter, payloads, context);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the project's workflows and activities
    return value as T;
  }
}

/** Whether no attempt of an activity was begun: the failure of the attempt before is the cause of the time-out. */
function isUnstarted(failure: temporal.api.failure.v1.IFailure | null | undefined): boolean {
  return Number(failure?.timeoutFailureInfo?.timeoutType) === SCHEDULE_TO_START && !failure?.cause;
}

function isoTime(time: { seconds?: unknown; nanos?: number | null } | null | undefined): string {
  return new Date(Number(time?.seconds ?? 0) * 1000 + Math.floor((time?.nanos ?? 0) / 1e6)).toISOString();
}
