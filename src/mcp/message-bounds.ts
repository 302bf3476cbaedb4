import type { ContentBlock, JSONRPCMessage, Transport } from '@modelcontextprotocol/client';
import type { Logger } from 'pino';
import { ResponseTooLargeError, boundText } from '../lib/response-bounds.ts';
import { errorMessage } from '../lib/errors.ts';
import { tooLargeError, unreadableError } from './errors.ts';
import { isFields, type Fields } from './fields.ts';
import { readContent, resourceBlocks } from './read-content.ts';
import { readTool } from './read-tools.ts';
import type { StreamBudget } from './stream-budget.ts';

/** Tools beyond these bounds are left out. */
const MAX_TOOLS = 1_000;
/** The tools of all pages as JSON, which are sent to the model with every call. */
const MAX_LIST_LENGTH = 4 * 1024 * 1024;
const MAX_WARNINGS = 20;
/**
 * Everything that the SDK validates: capabilities, metadata, the parameters of notifications. An invalid part takes up to
 * 50 µs, because the SDK collects all errors.
 */
const MAX_OTHER_VALUES = 1_000;
const MAX_ERROR_LENGTH = 10_000;

/** The listing of tools in progress, or the last one, over all of its pages. */
export interface Listing {
  tools: number;
  length: number;
  /** What was left out or repaired of it, for the operator. */
  warnings: string[];
}

const newListing = (): Listing => ({ tools: 0, length: 0, warnings: [] });

/**
 * Filters the messages of a transport: what the server has sent is read part by part, so that an odd part spoils nothing
 * else and the SDK's validation takes bounded time. A message on which this fails fails its request alone. Counts requests
 * for `budget`. Returns the listing, which contains how tools were read.
 */
export function boundMessages(
  transport: Transport,
  { budget, log }: { budget: Pick<StreamBudget, 'request'>; log: Logger },
): Listing {
  const send = transport.send.bind(transport);
  const listing = newListing();
  /** The last request for a page of tools: only its response is read as one. A call's result may have `tools`, too. */
  let pageId: unknown;
  transport.send = (message, options) => {
    if ('method' in message && 'id' in message) {
      budget.request();
      if (message.method === 'tools/list') {
        pageId = message.id;
        if (message.params?.['cursor'] === undefined) Object.assign(listing, newListing());
      }
    }
    return send(message, options);
  };
  const accept = (message: JSONRPCMessage): JSONRPCMessage | undefined => {
    const id = 'method' in message ? undefined : message.id;
    try {
      // The SDK, too, accepts a response with the id as a string.
      return bounded(message, id !== undefined && Number(id) === pageId ? listing : undefined);
    } catch (error) {
      if (error instanceof ResponseTooLargeError && id !== undefined) return tooLargeError(id, error);
      log.warn({ err: error }, 'a message of an MCP server cannot be read');
      if (id === undefined) return undefined;
      return unreadableError(id, `its answer cannot be read: ${errorMessage(error)}`.slice(0, MAX_ERROR_LENGTH));
    }
  };
  let receive: Transport['onmessage'];
  Object.defineProperty(transport, 'onmessage', {
    get: () => receive,
    set: (next: Transport['onmessage']) => {
      receive =
        next &&
        ((message, extra) => {
          const accepted = accept(message);
          if (accepted) next(accepted, extra);
        });
    },
  });
  return listing;
}

/** Undefined for a message to drop, never a response. `listing`: for a page of tools. @throws ResponseTooLargeError */
function bounded(message: JSONRPCMessage, listing: Listing | undefined): JSONRPCMessage | undefined {
  if ('result' in message) return { ...message, result: boundedResult(message.result, listing) };
  if ('error' in message) {
    const { code, message: text, data } = message.error;
    const kept = hasMoreThan(MAX_OTHER_VALUES, data) ? undefined : data;
    return { ...message, error: { code, message: text.slice(0, MAX_ERROR_LENGTH), data: kept } };
  }
  return hasMoreThan(MAX_OTHER_VALUES, message.params) ? undefined : message;
}

/** The field with the parts that were read: the SDK passes it on, but would reject a whole result for one bad part. */
const READ = 'io.everturn/read';

/** The result of a call, as it was read. */
interface ReadResult {
  content: ContentBlock[];
  structuredContent?: unknown;
}

/** What a result that the SDK has accepted contains. */
export function readResultOf(result: Fields): ReadResult {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `boundedResult`, which drops a server's own
  return (result[READ] as ReadResult | undefined) ?? { content: [] };
}

/** @throws ResponseTooLargeError */
function boundedResult(result: Fields, listing: Listing | undefined): Fields {
  // Counted before the result is destructured.
  if (Object.keys(result).length > MAX_OTHER_VALUES) throw tooMany(MAX_OTHER_VALUES, 'fields');
  if (listing && Array.isArray(result['tools'])) return pageOf(result['tools'], result, listing);
  const { content, contents, structuredContent, [READ]: _, ...others } = result;
  const isStructured = structuredContent !== undefined;
  const isOfCall = content !== undefined || Array.isArray(contents) || isStructured;
  const { _meta: __, isError, ...rest } = others;
  const passed = isOfCall ? rest : others;
  if (hasMoreThan(MAX_OTHER_VALUES, passed)) throw tooMany(MAX_OTHER_VALUES, 'values beside its content');
  if (!isOfCall) return passed;
  const parts = Array.isArray(contents) ? resourceBlocks(contents) : (content ?? []);
  return {
    ...passed,
    ...(isError !== undefined && { isError: Boolean(isError) }),
    ...(contents === undefined ? { content: [] } : { contents: [] }),
    [READ]: {
      content: readContent(Array.isArray(parts) ? parts : [parts]),
      ...(isStructured && { structuredContent }),
    },
  };
}

/** A page of a list of tools. Behind the last tool that fits there is no other page. */
function pageOf(tools: unknown[], page: Fields, listing: Listing): Fields {
  const { tools: _, nextCursor, ...others } = page;
  if (hasMoreThan(MAX_OTHER_VALUES, others)) throw tooMany(MAX_OTHER_VALUES, 'values beside its tools');
  const accepted: Fields[] = [];
  let isFull = false;
  for (const listed of tools) {
    const read = readTool(listed);
    if (read.warning !== undefined && listing.warnings.length < MAX_WARNINGS) listing.warnings.push(read.warning);
    if (!('tool' in read)) continue;
    const { length } = JSON.stringify(read.tool);
    isFull = listing.tools === MAX_TOOLS || listing.length + length > MAX_LIST_LENGTH;
    if (isFull) break;
    listing.length += length;
    listing.tools += 1;
    accepted.push(read.tool);
  }
  if (isFull) {
    const limits = `a server may have ${MAX_TOOLS} tools and ${boundText(MAX_LIST_LENGTH)} of descriptions and schemas`;
    listing.warnings.unshift(`only the first ${listing.tools} tools are offered: ${limits}`);
  }
  return { ...others, tools: accepted, ...(nextCursor !== undefined && !isFull && { nextCursor }) };
}

function tooMany(limit: number, parts: string): ResponseTooLargeError {
  return new ResponseTooLargeError(`its answer has more than ${limit} ${parts}`);
}

/** Nesting is bounded before messages are parsed, so the recursion is too. */
function hasMoreThan(limit: number, value: unknown): boolean {
  let count = 0;
  const visit = (node: unknown): boolean => {
    count += 1;
    return count > limit || (isFields(node) && Object.values(node).some(visit));
  };
  return visit(value);
}
