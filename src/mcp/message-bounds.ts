import type { JSONRPCMessage, ProtocolError, Transport } from '@modelcontextprotocol/client';
import { AnswerTooLargeError, sizeText } from '../lib/answer-bounds.ts';
import type { StreamBudget } from './stream-budget.ts';

/**
 * The SDK's validation of a message takes up to 50 µs for each invalid part, because it collects all errors: 5 s for
 * 100,000 empty content blocks. So it gets at most this many parts, and only fields that this client reads.
 */
const MAX_BLOCKS = 1_000;
const MAX_TOOLS = 1_000;
/** The tools of all pages as JSON, which are sent to the model with every call. */
const MAX_LIST_LENGTH = 4 * 1024 * 1024;
/** Everything else that the SDK validates: capabilities, metadata, the parameters of notifications. */
const MAX_OTHER_VALUES = 1_000;
const MAX_ERROR_LENGTH = 10_000;

/** Marks the errors that replace an answer that was too large; no server can send this object. */
const TOO_LARGE = { tooLarge: true };

export function tooLargeError(id: string | number, { message }: Error): JSONRPCMessage {
  return { jsonrpc: '2.0', id, error: { code: 0, message, data: TOO_LARGE } };
}

export function isTooLargeError(error: ProtocolError): boolean {
  return error.data === TOO_LARGE;
}

type Fields = Record<string, unknown>;

/** The tools listed so far, over all pages of one listing. */
interface Listed {
  tools: number;
  length: number;
}

/** Filters the messages of a transport so that the SDK's validation takes bounded time, and counts requests for `budget`. */
export function boundMessages(transport: Transport, budget: StreamBudget): void {
  const send = transport.send.bind(transport);
  let listed: Listed = { tools: 0, length: 0 };
  transport.send = (message, options) => {
    if ('method' in message && 'id' in message) budget.request();
    const isFirstPage =
      'method' in message && message.method === 'tools/list' && message.params?.['cursor'] === undefined;
    if (isFirstPage) listed = { tools: 0, length: 0 };
    return send(message, options);
  };
  let receive: Transport['onmessage'];
  Object.defineProperty(transport, 'onmessage', {
    get: () => receive,
    set: (next: Transport['onmessage']) => {
      receive =
        next &&
        ((message, extra) => {
          const accepted = bounded(message, listed);
          if (accepted) next(accepted, extra);
        });
    },
  });
}

/** Undefined for a message to drop, which answers no request. */
function bounded(message: JSONRPCMessage, listed: Listed): JSONRPCMessage | undefined {
  if ('result' in message) {
    try {
      return { ...message, result: boundedResult(message.result, listed) };
    } catch (error) {
      if (error instanceof AnswerTooLargeError) return tooLargeError(message.id, error);
      throw error;
    }
  }
  if ('error' in message) {
    const { code, message: text, data } = message.error;
    const kept = hasMoreThan(MAX_OTHER_VALUES, data) ? undefined : data;
    return { ...message, error: { code, message: text.slice(0, MAX_ERROR_LENGTH), data: kept } };
  }
  return hasMoreThan(MAX_OTHER_VALUES, message.params) ? undefined : message;
}

/** The fields that this client reads; all others are dropped before validation. */
const BLOCK_FIELDS = ['type', 'text', 'data', 'mimeType', 'resource', 'name', 'uri'];
const RESOURCE_FIELDS = ['uri', 'mimeType', 'text', 'blob'];
const TOOL_FIELDS = ['name', 'title', 'description', 'inputSchema', 'annotations'];
const ANNOTATION_FIELDS = ['title', 'readOnlyHint', 'destructiveHint', 'idempotentHint', 'openWorldHint'];

/** @throws AnswerTooLargeError */
function boundedResult(result: Fields, listed: Listed): Fields {
  // Counted before the result is destructured.
  if (Object.keys(result).length > MAX_OTHER_VALUES) throw tooMany(MAX_OTHER_VALUES, 'fields');
  const { content, tools, structuredContent, ...others } = result;
  if (hasMoreThan(MAX_OTHER_VALUES, others)) throw tooMany(MAX_OTHER_VALUES, 'values beside its content');
  return {
    ...others,
    ...(structuredContent !== undefined && { structuredContent }),
    ...(content !== undefined && { content: blocksOf(content) }),
    ...(tools !== undefined && { tools: toolsOf(tools, listed) }),
  };
}

function blocksOf(content: unknown): unknown {
  if (!Array.isArray(content)) return undefined;
  if (content.length > MAX_BLOCKS) throw tooMany(MAX_BLOCKS, 'parts');
  return content.map((block) => pick(block, BLOCK_FIELDS, { resource: RESOURCE_FIELDS }));
}

function toolsOf(tools: unknown, listed: Listed): unknown {
  if (!Array.isArray(tools)) return undefined;
  listed.tools += tools.length;
  if (listed.tools > MAX_TOOLS) throw tooMany(MAX_TOOLS, 'tools');
  const read = tools.map((tool) => pick(tool, TOOL_FIELDS, { annotations: ANNOTATION_FIELDS })).map(withShortRequired);
  listed.length += JSON.stringify(read).length;
  if (listed.length > MAX_LIST_LENGTH)
    throw new AnswerTooLargeError(`its list of tools is larger than ${sizeText(MAX_LIST_LENGTH)}`);
  return read;
}

/** Keeps only the first invalid name in `required`, which is enough for the SDK to reject the tool. */
function withShortRequired(tool: unknown): unknown {
  if (!isObject(tool) || !isObject(tool['inputSchema'])) return tool;
  const { required } = tool['inputSchema'];
  const invalid = Array.isArray(required) ? required.findIndex((name) => typeof name !== 'string') : -1;
  if (!Array.isArray(required) || invalid < 0) return tool;
  return { ...tool, inputSchema: { ...tool['inputSchema'], required: required.slice(invalid, invalid + 1) } };
}

function tooMany(limit: number, parts: string): AnswerTooLargeError {
  return new AnswerTooLargeError(`its answer has more than ${limit} ${parts}`);
}

function pick(value: unknown, names: string[], inner: Record<string, string[]> = {}): unknown {
  if (!isObject(value)) return value;
  const entries = names
    .filter((name) => Object.hasOwn(value, name))
    .map((name) => {
      const names = inner[name];
      return [name, names ? pick(value[name], names) : value[name]];
    });
  return Object.fromEntries(entries);
}

/** Nesting is bounded before messages are parsed, so the recursion is too. */
function hasMoreThan(limit: number, value: unknown): boolean {
  let count = 0;
  const visit = (node: unknown): boolean => {
    count += 1;
    return count > limit || (isObject(node) && Object.values(node).some(visit));
  };
  return visit(value);
}

function isObject(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null;
}
