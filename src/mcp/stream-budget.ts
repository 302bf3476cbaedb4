import type { Fetch } from '../lib/guarded-fetch.ts';
import { withBody } from '../lib/answer-bounds.ts';
import { McpServerError } from './errors.ts';

const WINDOW_MS = 60_000;
const MB = 1_000_000;

/** What a server may send in a minute on the event streams of a connection, or as the output of a program. */
export interface StreamLimits {
  /** In units of 1,000,000 unpacked bytes. */
  megabytesPerMinute: number;
  messagesPerMinute: number;
}

export const DEFAULT_STREAM_LIMITS: StreamLimits = { megabytesPerMinute: 64, messagesPerMinute: 6_000 };

interface StreamBudgetOptions extends StreamLimits {
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
 * request of the last two minutes: answers depend on how much a connection is used, and those that do not come as event
 * streams are not counted either.
 *
 * A budget outlives its connection, since a new connection would otherwise begin a new minute. After an excess the
 * server is refused for a minute, so that it is not connected again and again.
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
    const answers = this.#requests + this.#earlierRequests;
    if (this.#bytes > megabytesPerMinute * MB + answers * maxMessageBytes) {
      this.#exceeded(`${megabytesPerMinute} MB`, 'EVERTURN_MCP_MEGABYTES_PER_MINUTE');
    }
    if (this.#messages > messagesPerMinute + answers) {
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
 * `fetch` whose event streams spend a budget. `end` is called with the error before a stream fails with it, and
 * `onMessage` with the data of each message before it is passed on. A request for a stream counts as a message: a server
 * can end each stream at once, and says how soon the client asks again.
 *
 * Streams are requested without an encoding, and are rejected with one: a server could otherwise spend the processor
 * time of this process with hardly a byte on the network.
 */
export function budgetedFetch(
  fetch: Fetch,
  budget: StreamBudget,
  { end, onMessage }: { end: (error: Error) => void; onMessage: (data: string) => void },
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
    const headers = new Headers(init?.headers);
    headers.set('accept-encoding', 'identity');
    const response = await fetch(url, { ...init, headers: Object.fromEntries(headers) });
    const isStream = response.headers.get('content-type')?.toLowerCase().includes('text/event-stream') === true;
    if (isStream) ending(() => rejectEncoding(response, budget));
    // Clients read the answer to a GET as an event stream, also if its content type is another one.
    if (!(isStream || isGet) || !response.body) return response;
    const reader = new EventReader();
    const counted = response.body.pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>({
        transform: (part, controller) => {
          const events = reader.read(part);
          ending(() => budget.spend({ bytes: part.length, messages: events.length }));
          for (const data of events) if (data !== undefined) onMessage(data);
          controller.enqueue(part);
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
  #last = 0;
  /** The parts of the line that has not ended. */
  #line: Uint8Array[] = [];
  #isEventEmpty = true;
  #type = '';
  #data: string[] = [];

  /** The events that end in `part`: the data of a message, or undefined for another event. */
  read(part: Uint8Array): (string | undefined)[] {
    const ended: (string | undefined)[] = [];
    let begin = 0;
    for (const [at, byte] of part.entries()) {
      const isSecondHalf = byte === LF && this.#last === CR;
      this.#last = byte;
      if (byte !== LF && byte !== CR) continue;
      if (!isSecondHalf) {
        this.#line.push(part.subarray(begin, at));
        if (this.#endsEvent(Buffer.concat(this.#line).toString())) ended.push(this.#end());
        this.#line = [];
      }
      begin = at + 1;
    }
    this.#line.push(part.subarray(begin));
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
