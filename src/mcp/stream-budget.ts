import { setImmediate as nextTurn } from 'node:timers/promises';
import { withHeaders, type Fetch } from '../lib/guarded-fetch.ts';
import { withBody } from '../lib/response-bounds.ts';
import { McpServerError } from './errors.ts';
import { idInEnds, type RequestId } from './open-requests.ts';

const WINDOW_MS = 60_000;
const MB = 1_000_000;

/** What a server may send in a minute on the event streams of a connection, or as the output of a program. */
export interface McpStreamLimits {
  /** In units of 1,000,000 unpacked bytes. */
  megabytesPerMinute: number;
  messagesPerMinute: number;
}

export const DEFAULT_STREAM_LIMITS: McpStreamLimits = { megabytesPerMinute: 64, messagesPerMinute: 6_000 };

interface StreamBudgetOptions extends McpStreamLimits {
  /** Size of the largest message. */
  maxMessageBytes: number;
  /** A monotonic clock in milliseconds. */
  now: () => number;
  /** Called with each excess. */
  onRefused: (error: McpServerError) => void;
}

/**
 * What a server may send of its own accord. Each message costs processor time, and a stream lasts as long as its
 * connection, so a bound on the single message does not suffice. One message of the largest size is free for each
 * request of the last two minutes: responses depend on how much a connection is used, and those that do not come as
 * event streams are not counted either.
 *
 * A budget outlives its connection, since a new connection would otherwise begin a new minute. After an excess the
 * server is refused for a minute, so that it is not reconnected repeatedly.
 */
export class StreamBudget {
  readonly #options: StreamBudgetOptions;
  #windowEnd = -Infinity;
  #bytes = 0;
  #messages = 0;
  /** Requests of this window, and of the one before. */
  #requests = 0;
  #earlierRequests = 0;
  #failure: McpServerError | undefined;

  constructor(options: StreamBudgetOptions) {
    this.#options = options;
  }

  /** Why the server is currently refused. */
  get failure(): McpServerError | undefined {
    this.#renew();
    return this.#failure;
  }

  /** Counts a request that is about to be sent. */
  request(): void {
    this.#renew();
    this.#requests += 1;
  }

  /** @throws McpServerError if the server has sent too much */
  spend({ bytes = 0, messages = 0 }: { bytes?: number; messages?: number }): void {
    this.#renew();
    if (this.#failure) throw this.#failure;
    this.#bytes += bytes;
    this.#messages += messages;
    const { megabytesPerMinute, messagesPerMinute, maxMessageBytes } = this.#options;
    const responses = this.#requests + this.#earlierRequests;
    if (this.#bytes > megabytesPerMinute * MB + responses * maxMessageBytes) {
      this.#exceeded(`${megabytesPerMinute} MB`, 'EVERTURN_MCP_MEGABYTES_PER_MINUTE');
    }
    if (this.#messages > messagesPerMinute + responses) {
      this.#exceeded(`${messagesPerMinute} messages`, 'EVERTURN_MCP_MESSAGES_PER_MINUTE');
    }
  }

  /**
   * Refuses the server for a minute. `reason` is a predicate that continues after its name.
   * @throws McpServerError
   */
  refuse(reason: string): never {
    this.#failure = new McpServerError(`${reason}; it is not used for a minute`);
    this.#windowEnd = this.#options.now() + WINDOW_MS;
    this.#options.onRefused(this.#failure);
    throw this.#failure;
  }

  #exceeded(limit: string, setting: string): never {
    this.refuse(`has sent more than ${limit} in a minute, the limit of ${setting}`);
  }

  #renew(): void {
    const now = this.#options.now();
    if (now < this.#windowEnd) return;
    this.#windowEnd = now + WINDOW_MS;
    this.#bytes = 0;
    this.#messages = 0;
    this.#earlierRequests = this.#requests;
    this.#requests = 0;
    this.#failure = undefined;
  }
}

/**
 * `fetch` whose event streams spend a budget. `end` is called with the error before a stream fails with it. A request
 * for a stream counts as a message: a server can end each stream at once, and sets how soon the client reconnects.
 *
 * `onResponse` is called with the request of a response, valid or not, after the client has read it: the SDK drops an
 * invalid one, and the request would wait for its time-out. The stream of a POST may still have a valid response, so
 * only the last one counts, just before the end of the stream. Other streams last as long as their connection.
 *
 * Streams are requested without an encoding, and are rejected with one: a server could otherwise spend the processor
 * time of this process with hardly a byte on the network.
 */
export function budgetedFetch(
  fetch: Fetch,
  budget: StreamBudget,
  { end, onResponse }: { end: (error: Error) => void; onResponse: (id: RequestId) => void },
): Fetch {
  const ending = (work: () => void): void => {
    try {
      work();
    } catch (error) {
      end(error instanceof Error ? error : new Error(String(error)));
      throw error;
    }
  };
  return async (url, init) => {
    const isGet = init?.method === undefined || init.method === 'GET';
    if (isGet) ending(() => budget.spend({ messages: 1 }));
    const response = await fetch(url, withHeaders(init, { 'accept-encoding': 'identity' }));
    const isStream = response.headers.get('content-type')?.toLowerCase().includes('text/event-stream') === true;
    if (isStream) ending(() => rejectEncoding(response, budget));
    // Clients read the response to a GET as an event stream, also if its content type is another one.
    if (!(isStream || isGet) || !response.body) return response;
    const reader = new EventReader();
    let last: RequestId | undefined;
    const counted = response.body.pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>({
        transform: (part, controller) => {
          const events = reader.read(part);
          ending(() => budget.spend({ bytes: part.length, messages: events.length }));
          controller.enqueue(part);
          const ids = events.flatMap((data) => (data === undefined ? [] : (idInEnds(data) ?? [])));
          if (!isGet) last = ids.at(-1) ?? last;
          else if (ids.length > 0) void nextTurn().then(() => ids.forEach(onResponse));
        },
        flush: async () => {
          if (last === undefined) return;
          // By then the client has read what was passed on, while the end of the stream waits.
          await nextTurn();
          onResponse(last);
        },
      }),
    );
    return withBody(response, new Response(counted));
  };
}

/** @throws McpServerError */
function rejectEncoding(response: Response, budget: StreamBudget): void {
  const encoding = (response.headers.get('content-encoding') ?? 'identity').slice(0, 100);
  if (encoding.toLowerCase() === 'identity') return;
  void response.body?.cancel();
  budget.refuse(
    `has sent an event stream with content-encoding ${encoding}, which is not accepted: ` +
      'turn off the compression of event streams there, or at its proxy',
  );
}

const [LF, CR] = [0x0a, 0x0d];

/** Reads the events of a stream: lines up to an empty one. A line ends with CR, LF or both. */
class EventReader {
  #isAfterCr = false;
  /** The parts of the line that has not ended. */
  #line: Uint8Array[] = [];
  #isEventEmpty = true;
  #type = '';
  #data: string[] = [];

  /** The events that end in `part`: the data of a message, or undefined for another event. */
  read(part: Uint8Array): (string | undefined)[] {
    const ended: (string | undefined)[] = [];
    let begin = 0;
    let [lf, cr] = [part.indexOf(LF), part.indexOf(CR)];
    while (lf >= 0 || cr >= 0) {
      const isCr = lf < 0 || (cr >= 0 && cr < lf);
      const at = isCr ? cr : lf;
      const isSecondHalf = !isCr && at === begin && this.#isAfterCr;
      this.#isAfterCr = isCr;
      if (!isSecondHalf) {
        this.#line.push(part.subarray(begin, at));
        if (this.#endsEvent(Buffer.concat(this.#line).toString())) ended.push(this.#end());
        this.#line = [];
      }
      begin = at + 1;
      if (isCr) cr = part.indexOf(CR, begin);
      else lf = part.indexOf(LF, begin);
    }
    if (begin < part.length) {
      this.#isAfterCr = false;
      this.#line.push(part.subarray(begin));
    }
    return ended;
  }

  #endsEvent(line: string): boolean {
    if (line === '') return !this.#isEventEmpty;
    this.#isEventEmpty = false;
    const [, field, value = ''] = /^(data|event): ?(.*)$/s.exec(line) ?? [];
    if (field === 'data') this.#data.push(value);
    else if (field === 'event') this.#type = value;
    return false;
  }

  #end(): string | undefined {
    const isMessage = this.#data.length > 0 && (this.#type === '' || this.#type === 'message');
    const data = isMessage ? this.#data.join('\n') : undefined;
    this.#isEventEmpty = true;
    this.#type = '';
    this.#data = [];
    return data;
  }
}
