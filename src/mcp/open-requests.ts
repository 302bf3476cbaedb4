import type { JSONRPCMessage } from '@modelcontextprotocol/client';
import { parsedJson } from '../lib/json.ts';
import type { CutLine } from './message-lines.ts';

export type RequestId = string | number;

const ID = String.raw`(-?\d+|"(?:[^"\\]|\\.)*")`;
const VERSION = String.raw`"jsonrpc"\s*:\s*"2\.0"`;
/** The SDK for Python writes the id of a response first, the one for TypeScript last. */
const ID_FIRST = new RegExp(String.raw`^\s*\{\s*(?:${VERSION}\s*,\s*)?"id"\s*:\s*${ID}\s*,`);
const ID_LAST = new RegExp(String.raw`,\s*"id"\s*:\s*${ID}\s*(?:,\s*${VERSION}\s*)?\}\s*$`);
/** How a message begins: programs print other objects on standard output, too, such as lines of a log. */
const MESSAGE = /^\s*\{\s*"(?:jsonrpc|id|result|error)"\s*:/;
/** A request or a notification of the server. */
const METHOD = new RegExp(String.raw`^\s*\{\s*(?:(?:${VERSION}|"id"\s*:\s*${ID})\s*,\s*)*"(?:method|params)"`);

const END_LENGTH = 256;

/** A response whose ends do not contain the id of its request. */
interface Unassigned {
  candidates: Set<RequestId>;
  error: Error;
}

/**
 * The requests on a connection that have no response, for responses of which only the ends were read: these contain the
 * id of the request, or else only one request is left that can be meant.
 */
export class OpenRequests {
  readonly #open = new Set<RequestId>();
  readonly #onUnread: (id: RequestId, error: Error) => void;
  #unassigned: Unassigned[] = [];

  /** `onUnread` is called with each request whose response was not read. */
  constructor(onUnread: (id: RequestId, error: Error) => void) {
    this.#onUnread = onUnread;
  }

  sent(message: JSONRPCMessage): void {
    if (!('method' in message)) return;
    if ('id' in message) this.#open.add(message.id);
    // A server does not respond to a request that was cancelled (MCP, "Cancellation").
    const cancelled = message.method === 'notifications/cancelled' ? message.params?.['requestId'] : undefined;
    if (typeof cancelled === 'string' || typeof cancelled === 'number') this.#close(cancelled);
  }

  received(message: JSONRPCMessage): void {
    if (!('method' in message) && message.id !== undefined) this.#close(message.id);
  }

  /** A message that exceeded the bounds. A message that is no response is dropped. */
  cut({ head, tail, error }: CutLine): void {
    if (!isResponse(head)) return;
    const id = idIn(head, tail);
    if (id === undefined) {
      this.#unassigned.push({ candidates: new Set(this.#open), error });
      this.#assign();
      return;
    }
    if (!this.#open.has(id)) return;
    this.#close(id);
    this.#onUnread(id, error);
  }

  /** Closes the request of a response that is not a valid message, and returns its id. */
  invalid(line: string): RequestId | undefined {
    const id = idOfResponse(parsedJson(line));
    if (id === undefined || !this.#open.has(id)) return undefined;
    this.#close(id);
    return id;
  }

  #close(id: RequestId): void {
    this.#open.delete(id);
    for (const { candidates } of this.#unassigned) candidates.delete(id);
    this.#assign();
  }

  /** Assigns responses as soon as there is no doubt: when as many are unassigned as requests they can belong to. */
  #assign(): void {
    this.#unassigned = this.#unassigned.filter(({ candidates }) => candidates.size > 0);
    const meant = new Set(this.#unassigned.flatMap(({ candidates }) => [...candidates]));
    const [first] = this.#unassigned;
    if (!first || meant.size > this.#unassigned.length) return;
    this.#unassigned = [];
    for (const id of meant) this.#open.delete(id);
    for (const id of meant) this.#onUnread(id, first.error);
  }
}

/** The id of the request to which a value responds; the value may be an invalid message. */
export function idOfResponse(message: unknown): RequestId | undefined {
  if (typeof message !== 'object' || message === null || 'method' in message || !('id' in message)) return undefined;
  const { id } = message;
  return typeof id === 'string' || typeof id === 'number' ? id : undefined;
}

/** The same for a text, by its ends: it may be megabytes long, and the SDK parses it anyway. */
export function idInEnds(text: string): RequestId | undefined {
  const head = text.slice(0, END_LENGTH);
  return isResponse(head) ? idIn(head, text.slice(-END_LENGTH)) : undefined;
}

function isResponse(head: string): boolean {
  return MESSAGE.test(head) && !METHOD.test(head);
}

function idIn(head: string, tail: string): RequestId | undefined {
  const [, written] = ID_FIRST.exec(head) ?? ID_LAST.exec(tail) ?? [];
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a number or a string by its pattern
  return written === undefined ? undefined : (JSON.parse(written) as RequestId);
}
