import { isJsonObject } from '../../lib/json.ts';
import { contextParts, type ServerSecrets } from '../../mcp/server-secrets.ts';
import type { SharedWithServer, McpServer } from '../../spec/agent-spec.ts';
import { refusal, type FieldPath } from './errors.ts';
import { fillTemplates } from './templates.ts';
import type { Toolkit } from './wire/agent-params.ts';

export type McpToolkit = Extract<Toolkit, { type: 'mcp' }>;

/** What the servers of an agent get: the references in its spec, and the values. */
interface ToolkitSecrets {
  given: SharedWithServer[];
  /** Undefined if there are none. */
  secrets: ServerSecrets | undefined;
}

/** A server of a request, its toolkit, and the index of the toolkit. */
export interface ToolkitServer {
  server: McpServer;
  toolkit: McpToolkit;
  index: number;
}

/** The headers of one server, in characters: most servers accept no more than 8 or 16 thousand. */
const MAX_HEADERS_LENGTH = 32_768;

/** Headers of HTTP, of MCP and of this server, which no client sets. */
const RESERVED =
  /^(?:accept|accept-encoding|baggage|connection|content-.*|expect|host|idempotency-key|keep-alive|last-event-id|mcp-.*|proxy-.*|te|traceparent|tracestate|trailer|transfer-encoding|upgrade)$/;

/** The rules of the operator's headers: see `src/mcp/registry-file.ts`. */
const NAME = /^[\w!#$%&'*+.^`|~-]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]+$/;

/** Reads the values for the servers of toolkits. `root`: the path of the object with the toolkits. @throws ApiError */
export function secretsOf(
  servers: ToolkitServer[],
  { context, root }: { context: unknown; root: FieldPath },
): ToolkitSecrets {
  const given: SharedWithServer[] = [];
  const all: ServerSecrets['headers'] = [];
  for (const { server, toolkit, index } of servers) {
    const headers = headersOf(toolkit, context, [...root, 'toolkits', index]);
    const { context_keys: contextKeys } = toolkit;
    const hasHeaders = Object.keys(headers).length > 0;
    const hasContext = contextKeys !== undefined && contextKeys !== null && contextKeys.length > 0;
    if (!hasHeaders && !hasContext) continue;
    given.push({ server: server.name, ...(hasHeaders && { headers: all.length }), ...(hasContext && { contextKeys }) });
    if (hasHeaders) all.push(headers);
  }
  if (given.length === 0) return { given, secrets: undefined };
  const keys = new Set(given.flatMap(({ contextKeys = [] }) => contextKeys));
  return { given, secrets: { headers: all, context: contextParts(isJsonObject(context) ? context : {}, [...keys]) } };
}

/** The headers of a server, with names in lower case. @throws ApiError */
function headersOf(
  { authorization, headers }: McpToolkit,
  context: unknown,
  fieldPath: FieldPath,
): Record<string, string> {
  const templates = [
    ...(typeof authorization === 'string'
      ? [{ name: 'authorization', template: authorization, at: [...fieldPath, 'authorization'], scheme: 'Bearer ' }]
      : []),
    ...Object.entries(headers ?? {}).map(([name, template]) => ({
      name: name.toLowerCase(),
      template,
      at: [...fieldPath, 'headers', name],
      scheme: '',
    })),
  ];
  const filled = fillTemplates(
    templates.map(({ template }) => template),
    { context, maxAdded: MAX_HEADERS_LENGTH, pathOf: (i) => templates[i]?.at ?? fieldPath },
  );
  const read = new Map<string, string>();
  for (const [i, { name, at, scheme }] of templates.entries()) {
    const value = filled[i]?.trim() ?? '';
    if (!NAME.test(name)) throw refusal('invalid_request', at, 'is not the name of an HTTP header');
    if (RESERVED.test(name)) throw refusal('invalid_request', at, 'this server sets the header itself: leave it out');
    if (read.has(name)) throw refusal('invalid_request', at, 'the header is given twice');
    // The value is a secret, so the message does not show it.
    if (!VALUE.test(value)) {
      throw refusal('invalid_request', at, 'must be the value of an HTTP header: one line of Latin-1, and not empty');
    }
    read.set(name, /\s/.test(value) ? value : scheme + value);
  }
  const length = [...read].reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (length > MAX_HEADERS_LENGTH) {
    const message = `the headers of a server may have at most ${MAX_HEADERS_LENGTH} characters`;
    throw refusal('invalid_request', [...fieldPath, 'headers'], message);
  }
  return Object.fromEntries(read);
}
