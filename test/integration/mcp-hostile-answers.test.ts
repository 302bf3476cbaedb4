import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { SCOPE } from '../support/tool-scope.ts';
import { describe, expect, onTestFinished, test } from 'vitest';
import { startHostileServer, type Hostile, type HostileAnswers } from '../support/hostile-server.ts';
import { longestStretch, MAX_STRETCH_MS } from '../support/main-thread.ts';
import { storeToolResult, readResult } from '../../src/tools/results.ts';
import type { BlobStore } from '../../src/blobs/blob-store.ts';
import { sha256 } from '../../src/lib/hash.ts';
import type { CallResponse } from '../../src/mcp/call-outcome.ts';
import { McpPool, type McpServerTools } from '../../src/mcp/pool.ts';

const MB = 1_000_000;
const signal = new AbortController().signal;
const calling = { operationId: 'turn_1/call_1', signal, timeoutMs: 60_000 };

/** Hashes its input, as all stores do. */
const blobs = { put: async (_: string, bytes: Uint8Array) => sha256(bytes) } as unknown as BlobStore;

async function start(answers: HostileAnswers) {
  const server = await startHostileServer(answers);
  return { server, ...poolOf(server) };
}

function poolOf({ url, stop }: { url: string; stop: () => Promise<unknown> }) {
  const pool = new McpPool({ allowPrivateUrls: () => true, responseTimeoutMs: 60_000, messagesPerMinute: 1_000_000 });
  onTestFinished(async () => {
    await pool.close();
    await stop();
  });
  const endpoint = {
    id: 'x',
    name: 'x',
    url,
    headers: {},
    trusted: true,
    isolation: 'shared' as const,
    idempotentTools: [],
  };
  return {
    tools: () => pool.tools(endpoint, SCOPE, signal),
    call: () => pool.call(endpoint, SCOPE, 'act', {}, calling),
  };
}

/** A JSON-RPC result of `bytes`; fields that only one protocol version requires do no harm in the other. */
function result(fields: string, unit: string, bytes: number, end: string, separator = ''): Hostile {
  const head = `{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private",${fields}`;
  return { head, unit: unit + separator, bytes, tail: `${separator && unit}${end}}}` };
}

const text = (bytes: number): Hostile => result('"content":[{"type":"text","text":"', 'x', bytes, '"}]');
const list = (unit: string, bytes: number): Hostile => result('"content":[', unit, bytes, ']', ',');
const tools = (unit: string, bytes: number): Hostile => result('"tools":[', unit, bytes, ']', ',');
const asEvent = (hostile: Hostile): Hostile => ({
  ...hostile,
  head: `data: ${hostile.head}`,
  tail: `${hostile.tail}\n\n`,
});
const EVENTS = { contentType: 'text/event-stream' };

const tooLarge = /its (answer|list of tools) (is larger than|has more than|is nested deeper than)/;

/** Nearly as many values as are accepted. */
const full = (fields: string, unit: string, end: string): Hostile =>
  result(
    fields,
    unit,
    Math.min(4 * MB, (45_000 / ((unit.match(/[,[{]/g)?.length ?? 0) + 1)) * (unit.length + 1)),
    end,
    ',',
  );
const keys = (count: number): string => Array.from({ length: count }, (_, i) => `"k${i}":1`).join();
const whole = (fields: string): Hostile => result(fields, ' ', 0, '');

describe.each(['2026-07-28', '2025-11-25'] as const)('a result from a server of %s', (protocol) => {
  async function measure(hostile: Hostile, more: Partial<HostileAnswers>, calls = 1) {
    const { call, server } = await start({ methods: { 'tools/call': hostile }, protocol, ...more });
    await call();
    const countCalls = (): number => server.received.filter((method) => method === 'tools/call').length;
    const before = countCalls();
    const kept = async (): Promise<CallResponse> => {
      const outcome = await call();
      if (outcome.status === 'result') await storeToolResult(readResult(outcome), { blobs, sessionId: 's' });
      return outcome;
    };
    let outcomes: CallResponse[] = [];
    const stretch = await longestStretch(async () => {
      outcomes = await Promise.all(Array.from({ length: calls }, kept));
    });
    return { outcomes, requests: countCalls() - before, stretch };
  }

  test.each<[string, Hostile, Partial<HostileAnswers>, number]>([
    ['of 300 MB behind 0.3 MB of gzip', text(300 * MB), { gzip: true }, 1],
    ['of 60 MB, eight times at once', text(60 * MB), {}, 8],
    ['of 60 MB as one event, eight times at once', asEvent(text(60 * MB)), EVENTS, 8],
    ['that is one line without an end', { unit: 'x', bytes: 300 * MB }, EVENTS, 1],
    ['of lines that make no event', { unit: 'data: 1\n', bytes: 300 * MB }, EVENTS, 1],
    ['of 100,000 content blocks', list('{"type":"text","text":""}', 100_000 * 26), {}, 1],
    ['of 100,000 wrong content blocks', list('{}', 300_000), {}, 1],
    ['of 40,000 fields', whole(`"content":[],${keys(40_000)}`), {}, 1],
    [
      'that nests a million deep',
      result('"content":[],"structuredContent":{"a":', '[', MB, `1${']'.repeat(MB)}}`),
      {},
      1,
    ],
    ['of 1,000,000 empty objects', result('"content":[],"structuredContent":{"a":[', '{}', 3 * MB, ']}', ','), {}, 1],
  ])('%s is cut off, and not requested again', async (_, hostile, more, calls) => {
    const { outcomes, requests, stretch } = await measure(hostile, more, calls);
    for (const outcome of outcomes) {
      expect(outcome).toMatchObject({ status: 'result', isError: true });
      expect(JSON.stringify(outcome)).toMatch(tooLarge);
    }
    expect(requests).toBe(calls);
    expect(stretch).toBeLessThan(MAX_STRETCH_MS);
  });

  test.each<[string, Hostile, Partial<HostileAnswers>]>([
    ['of 4 MB of text', text(4 * MB), {}],
    ['of 4 MB of text as an event', asEvent(text(4 * MB)), EVENTS],
    ['of 4 MB of escapes', result('"content":[{"type":"text","text":"', '\\u0000', 4 * MB, '"}]'), {}],
    ['of 100,000 events', { unit: 'data: 1\n\n', bytes: 700_000 }, EVENTS],
    ['of a million empty lines', { unit: '\n', bytes: MB }, EVENTS],
    [
      'of messages that belong to nothing',
      { unit: 'data: {"jsonrpc":"2.0","id":99,"result":{}}\n\n', bytes: MB },
      EVENTS,
    ],
    [
      'of 16,000 messages in one',
      {
        head: '[',
        unit: '{"jsonrpc":"2.0","method":"a"},',
        bytes: 16_000 * 31,
        tail: '{"jsonrpc":"2.0","method":"a"}]',
      },
      {},
    ],
    ['of 16,000 wrong content blocks', list('{}', 48_000), {}],
    ['of 40,000 fields of metadata', whole(`"content":[],"_meta":{${keys(40_000)}}`), {}],
    ['of 1,000 wrong content blocks', list('{}', 2_990), {}],
    ['of 1,000 content blocks of the wrong type', list('{"type":"resource"}', 19_900), {}],
    ['of a content block with 40,000 fields', whole(`"content":[{"type":"text","text":"",${keys(40_000)}}]`), {}],
    [
      'of 40,000 wrong annotations',
      full('"content":[{"type":"text","text":"","annotations":{"audience":[', '1', ']}}]'),
      {},
    ],
    ['of 40,000 structured fields', whole(`"content":[],"structuredContent":{${keys(40_000)}}`), {}],
    ['of 49,000 structured values', full('"content":[],"structuredContent":{"a":[', '{}', ']}'), {}],
    [
      'of structured content beside 4 MB of other JSON',
      result('"structuredContent":{},"content":[{"type":"text","text":"[', '{}', 3 * MB, ']"}]', ','),
      {},
    ],
    [
      'of an error of 4 MB',
      { head: '{"jsonrpc":"2.0","id":$id,"error":{"code":1,"message":"', unit: 'token=', bytes: 4 * MB, tail: '"}}' },
      {},
    ],
  ])('%s does not block the main thread', async (_, hostile, more) => {
    const { outcomes, requests, stretch } = await measure(hostile, more);
    expect([outcomes.length, requests]).toEqual([1, 1]);
    expect(stretch).toBeLessThan(MAX_STRETCH_MS);
  });
});

describe.each(['2026-07-28', '2025-11-25'] as const)('an event stream of a server of %s', (protocol) => {
  const callWith = async (events: string[], isOpen = false) => {
    const head = events.map((event) => `${event}\n\n`).join('');
    const open = isOpen && { unit: ': \n\n', bytes: Infinity, pauseMs: 100 };
    const answer = { unit: ' ', bytes: 0, ...open, head };
    const { call } = await start({ methods: { 'tools/call': answer }, protocol, ...EVENTS });
    return call();
  };
  const good = 'data: {"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete","content":[]}}';

  test.each<[string, string[]]>([
    ['has a result that is no object', ['data: {"jsonrpc":"2.0","id":$id,"result":7}']],
    ['has no result and no error', ['data: {"jsonrpc":"2.0","id":$id}']],
    ['is of another version', ['event: message\ndata: {"id":$id,\ndata: "result":{"content":[]}}']],
    ['is no valid error, in a stream that could be resumed', ['id: 1\ndata: {"jsonrpc":"2.0","id":$id,"error":7}']],
  ])('with an answer that %s ends its call with the stream', async (_, events) => {
    const text = expect.stringMatching(/has answered this call.* may have taken effect/);
    expect(await callWith(events)).toMatchObject({
      status: 'result',
      isError: true,
      content: [{ type: 'text', text }],
    });
  });

  test.each([
    ['notification', 'data: {"jsonrpc":"2.0","method":7}'],
    ['answer to another request', 'data: {"jsonrpc":"2.0","id":99,"result":7}'],
    ['text', 'data: hello'],
    ['event of another type', 'event: state\ndata: {"id":$id,"state":"working"}'],
  ])('with an invalid %s before the answer does not end it', async (_, event) => {
    expect(await callWith([event, good], true)).toMatchObject({ status: 'result', isError: false });
  });

  const invalid = 'data: {"jsonrpc":"2.0","id":$id,"result":7}';

  test.each([
    ['before', [invalid, good]],
    ['after', [good, invalid]],
  ])('with an invalid answer %s the valid one does not replace it', async (_, both) => {
    expect(await callWith(both)).toMatchObject({ status: 'result', isError: false });
  });
});

test('an invalid answer on the stream of HTTP with SSE ends its call at once', async () => {
  const result = {
    protocolVersion: '2024-11-05',
    capabilities: { tools: {} },
    serverInfo: { name: 'x', version: '1' },
  };
  let stream: ServerResponse | undefined;
  const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (request.method === 'GET') {
      stream = response.writeHead(200, { 'content-type': 'text/event-stream' });
      stream.write('event: endpoint\ndata: /messages\n\n');
      return;
    }
    if (request.url === '/mcp') return void response.writeHead(405).end();
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- sent by the client under test
    const { id, method } = (await json(request)) as { id?: number; method: string };
    const answer = { jsonrpc: '2.0', id, result: method === 'initialize' ? result : 7 };
    if (id !== undefined) stream?.write(`data: ${JSON.stringify(answer)}\n\n`);
    response.writeHead(202).end();
  };
  const server = createServer((request, response) => void respond(request, response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const stop = async (): Promise<void> => {
    server.close();
    server.closeAllConnections();
    await once(server, 'close');
  };
  const { call } = poolOf({ url: `http://127.0.0.1:${port}/mcp`, stop });
  expect(await call()).toMatchObject({ status: 'result', isError: true });
});

describe.each(['2026-07-28', '2025-11-25'] as const)('a list of tools from a server of %s', (protocol) => {
  const tool = '{"name":"a","inputSchema":{"type":"object"}}';
  async function measure(hostile: Hostile, more: Partial<HostileAnswers> = {}) {
    const { tools: listed } = await start({ methods: { 'tools/list': hostile }, protocol, ...more });
    let result: McpServerTools | undefined;
    let failure: unknown;
    const stretch = await longestStretch(async () => {
      result = await listed().catch((error: unknown) => void (failure = error));
    });
    return { failure, listed: result, stretch };
  }

  test.each([
    ['of 200,000 tools', tools(tool, 200_000 * (tool.length + 1)), {}],
    ['of 300 MB behind gzip', result('"tools":[],"x":"', 'x', 300 * MB, '"'), { gzip: true }],
  ])('%s is rejected', async (_, hostile, more) => {
    const { failure, stretch } = await measure(hostile, more);
    expect(String(failure)).toMatch(tooLarge);
    expect(stretch).toBeLessThan(MAX_STRETCH_MS);
  });

  test.each<[string, Hostile, number]>([
    ['of 2,000 tools', tools(tool, 2_000 * (tool.length + 1)), 1_000],
    [
      'of pages of 3 MB',
      result(
        '"nextCursor":"1","tools":[{"name":"a","inputSchema":{"type":"object"},"description":"',
        'x',
        3 * MB,
        '"}]',
      ),
      1,
    ],
    [
      'of pages of 300 tools',
      result(
        '"nextCursor":"1","tools":[{"name":"t$id","inputSchema":{"type":"object"}},',
        tool,
        300 * (tool.length + 1),
        ']',
        ',',
      ),
      1_000,
    ],
  ])('%s is read up to its bound', async (_, hostile, count) => {
    const { failure, listed, stretch } = await measure(hostile);
    expect(failure).toBeUndefined();
    expect(listed?.tools).toHaveLength(count);
    expect(listed?.toolWarnings).toEqual([expect.stringMatching(/^only the first \d+ tools are offered/)]);
    expect(stretch).toBeLessThan(MAX_STRETCH_MS);
  });

  const schema = (fields: string, unit: string, end: string): Hostile =>
    full(`"tools":[{"name":"a","inputSchema":{"type":"object",${fields}`, unit, `${end}}}]`);
  test.each([
    ['of 1,000 wrong tools', tools('{}', 2_990)],
    ['with 40,000 values in an enum', schema('"properties":{"a":{"enum":[', '1', ']}}')],
    ['with 40,000 wrong names', schema('"required":[', '1', ']')],
    ['with 40,000 wrong icons', full('"tools":[{"name":"a","inputSchema":{"type":"object"},"icons":[', '{}', ']}]')],
    [
      'with 20,000 properties',
      whole(
        `"tools":[{"name":"a","inputSchema":{"type":"object","properties":{${keys(20_000).replaceAll(':1', ':{}')}}}}]`,
      ),
    ],
    [
      'with 40,000 wrong properties',
      whole(`"tools":[{"name":"a","inputSchema":{"type":"object","properties":{${keys(40_000)}}}}]`),
    ],
    [
      'with 40,000 annotations',
      whole(`"tools":[{"name":"a","inputSchema":{"type":"object"},"annotations":{${keys(40_000)}}}]`),
    ],
  ])('%s does not block the main thread', async (_, hostile) => {
    expect((await measure(hostile)).stretch).toBeLessThan(MAX_STRETCH_MS);
  });
});

test.each<[string, Hostile, Partial<HostileAnswers>, string]>([
  ['an endless event', { unit: 'x', bytes: 300 * MB }, {}, 'HTTP 405'],
  ['an endless event behind gzip', { unit: 'x', bytes: 300 * MB }, { gzip: true }, 'content-encoding gzip'],
  ['lines that make no event', { unit: 'data: 1\n', bytes: 300 * MB }, {}, 'HTTP 405'],
])('a server of HTTP with SSE that sends %s is abandoned', async (_, hostile, more, reason) => {
  const stream = { ...hostile, head: 'event: endpoint\ndata: /messages\n\ndata: ' };
  const { tools: listed, server } = await start({
    methods: { '': stream },
    // They are accepted, so that only the stream ends the attempt to connect.
    paths: { '/messages': { unit: ' ', bytes: 0 } },
    protocol: '2024-11-05',
    ...EVENTS,
    ...more,
  });
  const stretch = await longestStretch(() => expect(listed()).rejects.toThrow(reason));
  expect(server.received).toContain('');
  expect(stretch).toBeLessThan(MAX_STRETCH_MS);
});

describe('a program that responds with', () => {
  test.each([
    ['60 MB', `'"content":[{"type":"text","text":"' + 'x'.repeat(60_000_000) + '"}]'`],
    ['1,000,000 values', `'"content":[],"structuredContent":{"a":[' + '{},'.repeat(1_000_000) + '1]}'`],
    ['a million levels', `'"structuredContent":{"a":' + '['.repeat(1_000_000) + ']'.repeat(1_000_000) + '}'`],
  ])('a message of %s is cut off, and goes on running', async (_, fields) => {
    for (const answer of [
      `'{"jsonrpc":"2.0","id":' + id + ',"result":{' + ${fields} + '}}\\n'`,
      `'{"result":{' + ${fields} + '},"jsonrpc":"2.0","id":' + id + '}\\n'`,
    ]) {
      const { outcome, stretch, again } = await run(answer);
      expect(outcome).toMatchObject({ status: 'result', isError: true });
      expect(JSON.stringify(outcome)).toMatch(tooLarge);
      expect(again).toMatchObject({ status: 'result', isError: false });
      expect(stretch).toBeLessThan(MAX_STRETCH_MS);
    }
  });

  test.each([
    ['a line of 60 MB', "'x'.repeat(60_000_000) + '\\n'"],
    ['a line that nests a million deep', "'['.repeat(1_000_000) + '\\n'"],
    ['a million empty lines', "'\\n'.repeat(1_000_000)"],
    ['20,000 lines of no use', "'{}\\n'.repeat(20_000)"],
  ])('%s does not block the main thread', async (_, answer) => {
    const good = `'{"jsonrpc":"2.0","id":' + id + ',"result":{"content":[]}}\\n'`;
    const { outcome, stretch } = await run(`${answer} + ${good}`);
    expect(outcome).toMatchObject({ status: 'result' });
    expect(stretch).toBeLessThan(MAX_STRETCH_MS);
  });

  /** Calls the tool, and then another one, which has a plain result. */
  async function run(answer: string) {
    const program = `
      const result = { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'x', version: '1' } };
      require('node:readline').createInterface(process.stdin).on('line', (line) => {
        const { id, method, params } = JSON.parse(line);
        if (method === 'tools/call' && params.name === 'act') process.stdout.write(${answer});
        else if (method === 'tools/call') console.log(JSON.stringify({ jsonrpc: '2.0', id, result: { content: [] } }));
        else if (method === 'initialize') console.log(JSON.stringify({ jsonrpc: '2.0', id, result }));
        else if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32601, message: '' } }));
      });`;
    const pool = new McpPool({ allowPrivateUrls: () => true, messagesPerMinute: 1_000_000 });
    onTestFinished(() => pool.close());
    const endpoint = {
      id: 'x',
      name: 'x',
      command: process.execPath,
      args: ['-e', program],
      env: {},
      isolation: 'shared' as const,
      idempotentTools: [],
    };
    let outcome: CallResponse | undefined;
    const stretch = await longestStretch(async () => {
      outcome = await pool.call(endpoint, SCOPE, 'act', {}, calling);
    });
    return { outcome, stretch, again: await pool.call(endpoint, SCOPE, 'other', {}, calling) };
  }
});
