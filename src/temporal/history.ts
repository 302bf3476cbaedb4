import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection } from '@temporalio/client';
import type { LoadedDataConverter, Payload, SerializationContext } from '@temporalio/common';
import { decodeArrayFromPayloads } from '@temporalio/common/lib/internal-non-workflow/index.js';
import type { temporal } from '@temporalio/proto';
import type {
  ActivityResult,
  HistoryEvent,
  ScheduledActivity,
  TurnResult,
  TurnStart,
  WorkflowClose,
} from '../core/history.ts';
import type { CancelReason, NewRecord } from '../core/records.ts';
import { turnWorkflowId } from '../core/temporal-names.ts';
import { linkSignal } from '../lib/abort.ts';
import { failureMessage } from './data-converter.ts';

type RawEvent = temporal.api.history.v1.IHistoryEvent;

/** A part of a run's history. */
export interface HistoryPage {
  /** Those of interest to the log. */
  events: HistoryEvent[];
  /** Of the last event of the page, whatever it is. */
  lastEventId: number;
}

interface Page extends HistoryPage {
  /** Absent at the end of a closed run, or of what there is now if the reader does not follow. */
  next: Uint8Array | undefined;
  /** Set where a run that an operator has reset was given another continuation: the run, as it went on in truth. */
  resetRunId: string | undefined;
}

/** Events per page: a page of them stays far below what a gRPC message may hold, at 128 KiB a payload. */
const PAGE_SIZE = 250;

/** From the end, where what is looked for stands near it. */
const REVERSE_PAGE_SIZE = 50;

/**
 * Between two polls of a reader who follows. Each commit to a history answers a poll, and of the three that an activity
 * makes only one is of interest; asked a little later, one poll hears of all.
 */
const POLL_INTERVAL_MS = 10;

/** The server answers a long poll within 20 s; past this one is lost. */
const LONG_POLL_DEADLINE_MS = 40_000;

/**
 * Reads the histories of turn workflows as the projection wants them. This is the one place that decodes raw history:
 * the client does not, and payloads may have to go through a codec.
 */
export class TurnHistory {
  readonly #connection: Connection;
  readonly #namespace: string;
  readonly #converter: LoadedDataConverter;

  constructor({
    connection,
    namespace,
    converter,
  }: {
    connection: Connection;
    namespace: string;
    converter: LoadedDataConverter;
  }) {
    this.#connection = connection;
    this.#namespace = namespace;
    this.#converter = converter;
  }

  /**
   * The events of a run, oldest first: up to now, or with `follow` also those to come, until the run ends or the signal
   * is aborted (which throws). Without `runId`: the turn's current, or last, run.
   *
   * An operator's reset ends a turn: what readers have seen, and tools have done, can't be taken back. So a run that came
   * of a reset is read as the run that was reset, whose events up to there it shares, and so is what it continued as.
   */
  async *read(turnId: string, runId?: string, follow?: AbortSignal, after = 0): AsyncGenerator<HistoryPage> {
    for (let page: Page | undefined; !page || page.next;) {
      if (page && follow) await sleep(POLL_INTERVAL_MS, undefined, { signal: follow });
      page = await this.#page({ turnId, runId, token: page?.next, pageSize: PAGE_SIZE, follow, after });
      const [first] = page.events;
      const carry = first?.type === 'started' ? first.start.carry : undefined;
      if (carry?.isReset) {
        yield* this.read(turnId, carry.previousRunId, follow, after);
        return;
      }
      yield page;
      if (page.resetRunId) yield* this.read(turnId, page.resetRunId, follow, page.lastEventId);
    }
  }

  /** The events of a run behind event `after`, read from the end, so that it costs what is new and not what is old. */
  async readSince(turnId: string, runId: string, after: number): Promise<HistoryPage> {
    const raw: RawEvent[] = [];
    let token: Uint8Array | undefined;
    do {
      const response = await this.#reverse(turnId, { runId, pageSize: REVERSE_PAGE_SIZE, token });
      raw.push(...(response.history?.events ?? []));
      token = response.nextPageToken;
    } while (token.length > 0 && Number(raw.at(-1)?.eventId) > after + 1);
    return this.#decodePage(turnId, raw.filter((event) => Number(event.eventId) > after).reverse(), after);
  }

  /** The events of a turn's current, or last, run in batches from its end; those of a batch are in their order. */
  async *readBackwards(turnId: string): AsyncGenerator<HistoryEvent[]> {
    let token: Uint8Array | undefined;
    do {
      const response = await this.#reverse(turnId, { pageSize: REVERSE_PAGE_SIZE, token });
      const raw = response.history?.events ?? [];
      yield (await this.#decodePage(turnId, raw.reverse(), 0)).events;
      token = response.nextPageToken;
    } while (token.length > 0);
  }

  /** What a turn was started with, from the first event of its current run, or of `runId`. */
  async start(turnId: string, runId?: string): Promise<TurnStart> {
    const { events } = await this.#page({ turnId, runId, token: undefined, pageSize: 1 });
    const [first] = events;
    if (first?.type !== 'started') throw new Error(`the history of turn ${turnId} does not begin with its start`);
    return first.start;
  }

  /** How a turn's workflow closed; undefined while it is still at work. */
  async close(turnId: string): Promise<WorkflowClose | undefined> {
    const { history } = await this.#reverse(turnId, { pageSize: 1 });
    const { events } = await this.#decodePage(turnId, history?.events ?? [], 0);
    const [last] = events;
    return last?.type === 'closed' ? last.close : undefined;
  }

  #reverse(
    turnId: string,
    { runId, pageSize, token }: { runId?: string; pageSize: number; token?: Uint8Array | undefined },
  ) {
    return this.#bounded(() =>
      this.#connection.workflowService.getWorkflowExecutionHistoryReverse({
        namespace: this.#namespace,
        execution: { workflowId: turnWorkflowId(turnId), ...(runId && { runId }) },
        maximumPageSize: pageSize,
        ...(token && { nextPageToken: token }),
      }),
    );
  }

  #bounded<T>(request: () => Promise<T>): Promise<T> {
    return this.#connection.withDeadline(Date.now() + LONG_POLL_DEADLINE_MS, request);
  }

  async #page({
    turnId,
    runId,
    token,
    pageSize,
    follow,
    after = 0,
  }: {
    turnId: string;
    runId: string | undefined;
    token: Uint8Array | undefined;
    pageSize: number;
    follow?: AbortSignal | undefined;
    /** Events up to this one are left out. */
    after?: number;
  }): Promise<Page> {
    const request = () =>
      this.#connection.workflowService.getWorkflowExecutionHistory({
        namespace: this.#namespace,
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

  /** The client never removes its listener from a signal that it was given, so it is given one of its own each time. */
  async #until<T>(stop: AbortSignal, request: () => Promise<T>): Promise<T> {
    const controller = new AbortController();
    const unlink = linkSignal(stop, controller);
    try {
      return await this.#connection.withAbortSignal(controller.signal, request);
    } finally {
      unlink();
    }
  }

  async #decodePage(turnId: string, raw: RawEvent[], after: number): Promise<HistoryPage> {
    const workflowId = turnWorkflowId(turnId);
    const decoder = new EventDecoder(this.#converter, { namespace: this.#namespace, workflowId });
    const decoded = await Promise.all(raw.map((event) => decoder.decode(event)));
    return {
      events: decoded.filter((event) => event !== undefined),
      lastEventId: Number(raw.at(-1)?.eventId ?? after),
    };
  }
}

/** Decodes the events of one workflow. */
class EventDecoder {
  readonly #converter: LoadedDataConverter;
  readonly #own: SerializationContext;
  readonly #ofActivity: SerializationContext;

  constructor(converter: LoadedDataConverter, workflow: { namespace: string; workflowId: string }) {
    this.#converter = converter;
    this.#own = { type: 'workflow', ...workflow };
    this.#ofActivity = { type: 'activity', isLocal: false, ...workflow };
  }

  async decode(event: RawEvent): Promise<HistoryEvent | undefined> {
    const at = isoTime(event.eventTime);
    const started = event.workflowExecutionStartedEventAttributes;
    if (started) return { type: 'started', at, start: await this.#first<TurnStart>(started.input?.payloads) };
    const scheduled = event.activityTaskScheduledEventAttributes;
    if (scheduled) {
      const name = scheduled.activityType?.name;
      if (name !== 'callModel' && name !== 'callTool' && name !== 'connectTools') return undefined;
      const input = await this.#first<ScheduledActivity['input']>(scheduled.input?.payloads, this.#ofActivity);
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- our own workflow wrote it: the name decides the type
      const activity = { name, input } as ScheduledActivity;
      const { activityId } = scheduled;
      return { type: 'scheduled', eventId: Number(event.eventId), ...(activityId && { activityId }), at, activity };
    }
    const end = await this.#activityEnd(event);
    if (end) return { type: 'ended', at, ...end };
    const continued = event.workflowExecutionContinuedAsNewEventAttributes;
    if (continued) return { type: 'continued', at, runId: continued.newExecutionRunId ?? '' };
    const close = await this.#close(event);
    return close && { type: 'closed', at, close };
  }

  async #activityEnd(event: RawEvent): Promise<{ scheduledEventId: number; end: ActivityResult } | undefined> {
    const completed = event.activityTaskCompletedEventAttributes;
    if (completed) {
      const result = await this.#first<{ records?: NewRecord[] } | undefined>(
        completed.result?.payloads,
        this.#ofActivity,
      );
      const end: ActivityResult = { how: 'completed', records: result?.records ?? [] };
      return { scheduledEventId: Number(completed.scheduledEventId), end };
    }
    const failed = event.activityTaskFailedEventAttributes;
    if (failed) {
      const message = await failureMessage(this.#converter, failed.failure);
      return { scheduledEventId: Number(failed.scheduledEventId), end: { how: 'failed', message } };
    }
    const timedOut = event.activityTaskTimedOutEventAttributes;
    if (timedOut) return { scheduledEventId: Number(timedOut.scheduledEventId), end: { how: 'timed_out' } };
    const canceled = event.activityTaskCanceledEventAttributes;
    if (canceled) {
      const started = Number(canceled.startedEventId ?? 0) > 0;
      return { scheduledEventId: Number(canceled.scheduledEventId), end: { how: 'cancelled', started } };
    }
    return undefined;
  }

  async #close(event: RawEvent): Promise<WorkflowClose | undefined> {
    const completed = event.workflowExecutionCompletedEventAttributes;
    if (completed) return { how: 'completed', result: await this.#first<TurnResult>(completed.result?.payloads) };
    const failed = event.workflowExecutionFailedEventAttributes;
    if (failed) return { how: 'failed', message: await failureMessage(this.#converter, failed.failure) };
    if (event.workflowExecutionTimedOutEventAttributes) return { how: 'timed_out' };
    const terminated = event.workflowExecutionTerminatedEventAttributes;
    if (terminated) {
      // Our own terminate says why, as its details; an operator's does not.
      const reason = await this.#first<CancelReason | undefined>(terminated.details?.payloads);
      return { how: 'terminated', reason: reason ?? 'abandoned' };
    }
    if (event.workflowExecutionCanceledEventAttributes) return { how: 'terminated', reason: 'abandoned' };
    return undefined;
  }

  async #first<T>(payloads: Payload[] | null | undefined, context = this.#own): Promise<T> {
    const [value] = await decodeArrayFromPayloads(this.#converter, payloads, context);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- our own workflows and activities wrote it
    return value as T;
  }
}

function isoTime(time: { seconds?: unknown; nanos?: number | null } | null | undefined): string {
  return new Date(Number(time?.seconds ?? 0) * 1000 + Math.floor((time?.nanos ?? 0) / 1e6)).toISOString();
}
