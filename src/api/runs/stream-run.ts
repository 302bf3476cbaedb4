import { BEGINNING } from '../../core/cursor.ts';
import type { FollowedEntry, NumberedFrame } from '../../live/stream-sequencer.ts';
import type { ApiContext } from '../http/context.ts';
import type { EventStream, ServerSentEvent } from '../http/event-stream.ts';
import { streamTurn, TurnReader, type TurnStreamOptions } from '../http/turn-stream.ts';
import { loadFiles, mustLoadFiles } from './load-files.ts';
import { RunEvents, type RunEventsOptions } from './run-events.ts';
import type { RunStreamEvent } from './wire/run.ts';

interface StreamRunOptions extends RunEventsOptions, Pick<TurnStreamOptions, 'turnId' | 'lease' | 'created'> {
  context: Pick<ApiContext, 'catalog' | 'logs' | 'tails' | 'blobs'>;
  sessionId: string;
  stream: EventStream;
}

/**
 * Streams a run to one connection until it ends or waits for its client. A client that already has the pause gets the
 * events after it. Responds with 204 if the run has ended and the client has all of it.
 * @throws ApiError `invalid_cursor` and TurnNotFound, before anything is sent
 */
export async function streamRun(options: StreamRunOptions): Promise<void> {
  const { context, turnId, lease, created } = options;
  const reader = new RunReader(options);
  await streamTurn({ context, turnId, reader, ...(lease && { lease }), created, endsWithNothing: true });
}

class RunReader extends TurnReader {
  readonly #events: RunEvents;
  readonly #loadFiles: (frame: NumberedFrame) => Promise<NumberedFrame>;
  /** Frames that were pushed, and whose files are to be loaded. */
  #unloaded: NumberedFrame[] = [];
  /** The connection has been sent everything up to now, and is sent each change. */
  #isLive = false;

  constructor({ context: { blobs }, run, reader, limits, sessionId, cursor, stream }: StreamRunOptions) {
    super(stream, cursor, BEGINNING);
    this.#events = new RunEvents({ run, reader, limits, cursor });
    this.#loadFiles = async (numbered) => {
      const { frame } = numbered;
      const from = { blobs, sessionId };
      if (frame.kind === 'end')
        return { ...numbered, frame: { ...frame, message: await loadFiles(frame.message, from) } };
      if (frame.kind !== 'record') return numbered;
      return { ...numbered, frame: { ...frame, record: await loadFiles(frame.record, from) } };
    };
  }

  protected override *events(frames: NumberedFrame[]): Generator<ServerSentEvent> {
    yield* this.#events.events(frames).map(toServerSent);
  }

  override async writeEntries(entries: FollowedEntry[]): Promise<void> {
    for (const entry of entries) {
      if (this.stream.isClosed) return;
      const frames = await Promise.all(this.sequencer.durable(entry).map(this.#loadFiles));
      await this.write(frames);
    }
  }

  override push(frames: NumberedFrame[]): boolean {
    const mustLoad = frames.some(
      ({ frame }) =>
        (frame.kind === 'record' && mustLoadFiles(frame.record)) ||
        (frame.kind === 'end' && mustLoadFiles(frame.message)),
    );
    if (mustLoad) this.#unloaded = frames;
    this.#isLive = !mustLoad && super.push(frames);
    // The records that a command adds come one after the other, and the last one may end the pause.
    if (this.#isLive && this.#events.isPaused) setImmediate(() => this.#endIfPaused());
    return this.#isLive;
  }

  override async flush(): Promise<void> {
    await super.flush();
    await this.write(await Promise.all(this.#unloaded.splice(0).map(this.#loadFiles)));
  }

  override caughtUp(): void {
    this.#isLive = true;
    this.#endIfPaused();
  }

  #endIfPaused(): void {
    const event = this.#isLive ? this.#events.pause() : undefined;
    if (!event || this.stream.isClosed) return;
    this.stream.push([toServerSent(event)]);
    this.stream.end();
  }
}

function toServerSent(event: RunStreamEvent): ServerSentEvent {
  return { id: event.sequence_number, data: event };
}
