import { createServer } from 'node:http';
import { once } from 'node:events';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { pino } from 'pino';
import { describe, expect, onTestFinished, test } from 'vitest';
import { eventually } from '../../test/support/eventually.ts';
import { startHostileServer, type Hostile, type HostileAnswers } from '../../test/support/hostile-server.ts';
import { stdioEndpoint } from '../../test/support/mcp-kinds.ts';
import { TestMcpServer } from '../../test/support/mcp-server.ts';
import { SCOPE } from '../../test/support/tool-scope.ts';
import { McpPool } from './pool.ts';
import type { McpEndpoint } from './registry.ts';
import { budgetedFetch, StreamBudget, type McpStreamLimits } from './stream-budget.ts';

const MINUTE_MS = 60_000;
const NO_LISTENERS = { end: () => undefined, onResponse: () => undefined };
const { signal } = new AbortController();
const calling = { operationId: 'turn_1/call_1', signal, timeoutMs: 60_000 };

/** A clock that stands still. */
function clock() {
  const time = { ms: 1_000 };
  return { time, now: () => time.ms };
}

function budgetOf(limits: Partial<McpStreamLimits> = {}) {
  const { time, now } = clock();
  const refusals: string[] = [];
  const budget = new StreamBudget({
    megabytesPerMinute: 1,
    messagesPerMinute: 10,
    maxMessageBytes: 500_000,
    ...limits,
    now,
    onRefused: ({ message }) => refusals.push(message),
  });
  return { budget, time, refusals };
}

describe('a budget', () => {
  test('ends with the first message above the limit, and begins again a minute later', () => {
    const { budget, time, refusals } = budgetOf();
    budget.spend({ messages: 10 });
    expect(() => budget.spend({ messages: 1 })).toThrow(
      'has sent more than 10 messages in a minute, the limit of EVERTURN_MCP_MESSAGES_PER_MINUTE; it is not used for a minute',
    );
    time.ms += MINUTE_MS - 1;
    expect(() => budget.spend({})).toThrow('10 messages');
    expect(budget.failure?.message).toContain('10 messages');
    time.ms += 1;
    expect(budget.failure).toBe(undefined);
    budget.spend({ messages: 10 });
    expect(refusals.length).toBe(1);
  });

  test('of bytes names its own setting', () => {
    const { budget } = budgetOf();
    budget.spend({ bytes: 1_000_000 });
    expect(() => budget.spend({ bytes: 1 })).toThrow(
      'more than 1 MB in a minute, the limit of EVERTURN_MCP_MEGABYTES_PER_MINUTE',
    );
  });

  test('is renewed each minute', () => {
    const { budget, time } = budgetOf();
    for (let minute = 0; minute < 3; minute++) {
      budget.spend({ bytes: 1_000_000, messages: 10 });
      time.ms += MINUTE_MS;
    }
  });

  test('does not count the answers to requests of this minute and the one before', () => {
    const { budget, time } = budgetOf();
    for (let i = 0; i < 3; i++) budget.request();
    budget.spend({ bytes: 2_500_000, messages: 13 });
    time.ms += MINUTE_MS;
    budget.spend({ bytes: 2_500_000, messages: 13 });
    time.ms += MINUTE_MS;
    expect(() => budget.spend({ messages: 11 })).toThrow('10 messages');
  });
});

/** A server whose responses are given, and what the client has requested. */
async function answering(headers: Record<string, string>, body: string | Buffer, status = 200) {
  const seen: Record<string, unknown>[] = [];
  const server = createServer((request, response) => {
    seen.push(request.headers);
    response.writeHead(status, headers).end(body);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : undefined;
  return { url: `http://127.0.0.1:${port}/`, seen };
}

describe('a stream', () => {
  const events = { 'content-type': 'text/event-stream' };

  test.each([
    ['one message per empty line', 'data: 1\n\ndata: 2\n\n', 2],
    ['empty lines without a message', '\n\n\n\n\r\n\r\n', 0],
    ['CRLF', 'data: 1\r\n\r\ndata: 2\r\ndata: 3\r\n\r\n', 2],
    ['CR alone', 'data: 1\r\rdata: 2\r\r', 2],
    ['comments, which are parsed too', ': 1\n\n: 2\n\n', 2],
    ['no end', 'data: 1\n', 0],
  ])('counts %s', async (_, body, count) => {
    const { url } = await answering(events, body);
    const requested = async (messagesPerMinute: number) => {
      const { budget } = budgetOf({ messagesPerMinute });
      const response = await budgetedFetch(fetch, budget, NO_LISTENERS)(url, { method: 'POST' });
      return response.text();
    };
    expect(await requested(count)).toBe(body);
    if (count > 0) await expect(requested(count - 1)).rejects.toThrow(`more than ${count - 1} messages`);
  });

  /**
   * What happens while a client reads a stream of `parts` through several stages, as the SDK does: the texts that it gets,
   * and the answers that are reported.
   */
  async function reading(method: string, parts: Uint8Array[]): Promise<(string | number)[]> {
    const seen: (string | number)[] = [];
    const respond = () => Promise.resolve(new Response(ReadableStream.from(parts), { headers: events }));
    const onResponse = (id: string | number) => void seen.push(id);
    const budgeted = budgetedFetch(respond, budgetOf().budget, { ...NO_LISTENERS, onResponse });
    const { body } = await budgeted('http://x', { method });
    let texts = body?.pipeThrough(new TextDecoderStream());
    for (let stage = 0; stage < 10; stage++) texts = texts?.pipeThrough(new TransformStream<string, string>());
    for await (const text of texts ?? []) seen.push(text);
    await nextTurn();
    return seen;
  }

  test.each([1, 3, 1_000])('is read for the answers in it in parts of %i bytes', async (size) => {
    const text =
      ': {"id":7,"result":1}\n\nid: 1\r\ndata: {"id":1,\r\ndata:"ä":1}\r\n\r\nevent: endpoint\ndata: {"id":8,"result":1}\n\n' +
      'event: message\rdata: {"result":1,"id":"call-2"}\r\rdata: {"id":9,"method":7}\n\ndata: hello\n\ndata: {"id":3,"result":1}';
    const bytes = Buffer.from(text);
    const parts = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
      bytes.subarray(i * size, (i + 1) * size),
    );
    const seen = await reading('GET', parts);
    const ids = [1, 'call-2'];
    expect(seen.filter((one) => ids.includes(one))).toEqual(ids);
    expect(seen.filter((one) => !ids.includes(one)).join('')).toBe(text);
  });

  const [good, bad] = ['data: {"id":1,"result":{}}\n\n', 'data: {"id":1,"result":7}\n\n'];

  test.each<[string, string, string[], (string | number)[]]>([
    ['GET', 'when the client has read its part', [good + bad], [good + bad, 1, 1]],
    ['POST', 'when the client has read all of it', [bad, good], [bad, good, 1]],
  ])('in reply to a %s reports an answer only %s', async (method, _, parts, seen) => {
    const bytes = parts.map((part) => Buffer.from(part));
    expect(await reading(method, bytes)).toEqual(seen);
  });

  test('is requested without an encoding, also if a header of the server names one', async () => {
    const { url, seen } = await answering(events, '');
    const budgeted = budgetedFetch(fetch, budgetOf().budget, NO_LISTENERS);
    await budgeted(url, { headers: { 'Accept-Encoding': 'gzip', 'x-team': 'a' } });
    expect(seen).toMatchObject([{ 'accept-encoding': 'identity', 'x-team': 'a' }]);
  });

  test('with an encoding is rejected before it is read', async () => {
    const { url } = await answering({ ...events, 'content-encoding': 'br' }, 'not read');
    const ends: Error[] = [];
    const { budget, refusals } = budgetOf();
    const budgeted = budgetedFetch(fetch, budget, { ...NO_LISTENERS, end: (error) => ends.push(error) });
    await expect(budgeted(url, { method: 'POST' })).rejects.toThrow(
      'has sent an event stream with content-encoding br, which is not accepted',
    );
    expect([ends.length, refusals.length]).toEqual([1, 1]);
  });

  test('is what a GET gets, whatever its type; JSON is not counted', async () => {
    const { url } = await answering({ 'content-type': 'application/json' }, '{}\n\n'.repeat(20));
    const budgeted = budgetedFetch(fetch, budgetOf().budget, NO_LISTENERS);
    expect((await (await budgeted(url, { method: 'POST' })).text()).length).toBe(80);
    await expect(budgeted(url).then((response) => response.text())).rejects.toThrow('more than 10 messages');
  });

  test('is counted with an error as its status, too', async () => {
    const { url } = await answering(events, 'data: 1\n\n'.repeat(11), 400);
    const answer = budgetedFetch(fetch, budgetOf().budget, NO_LISTENERS)(url, { method: 'POST' });
    await expect(answer.then((response) => response.text())).rejects.toThrow('more than 10 messages');
  });

  test('is not what a page is that a server has at its URL, which may be compressed', async () => {
    const { url } = await answering({ 'content-type': 'text/html', 'content-encoding': 'gzip' }, gzipSync('<p>hi'));
    const answer = await budgetedFetch(fetch, budgetOf().budget, NO_LISTENERS)(url);
    expect(await answer.text()).toBe('<p>hi');
  });
});

const ENDLESS = 1e12;
const notification = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}';
const messages: Hostile = { unit: `data: ${notification}\n\n`, bytes: ENDLESS };
const bytes: Hostile = { unit: `data: ${'x'.repeat(60_000)}\n\n`, bytes: ENDLESS };

interface Flood {
  answers: (flood: Hostile) => HostileAnswers;
  /** The message that shows how often the client has connected. */
  first: string;
}

const floods = {
  'the stream of notifications': {
    answers: (flood) => ({ methods: { '': flood }, protocol: '2025-11-25' }),
    first: 'initialize',
  },
  'the stream of HTTP with SSE': {
    answers: (flood) => ({
      methods: { '': { ...flood, head: 'event: endpoint\ndata: /messages\n\n' } },
      paths: { '/messages': { unit: ' ', bytes: 0 } },
      protocol: '2024-11-05',
    }),
    first: '',
  },
  'the response to a call': {
    answers: (flood) => ({ methods: { 'tools/call': flood } }),
    first: 'tools/call',
  },
} satisfies Record<string, Flood>;

function poolOf(limits: Partial<McpStreamLimits> = {}) {
  const { time, now } = clock();
  const warnings: string[] = [];
  const log = pino({ level: 'warn' }, { write: (line) => void warnings.push(JSON.parse(line).msg) });
  const pool = new McpPool({
    allowPrivateUrls: () => true,
    // A handshake that waits for its time-out fails the test.
    responseTimeoutMs: 600_000,
    megabytesPerMinute: 5,
    messagesPerMinute: 500,
    ...limits,
    now,
    log,
  });
  onTestFinished(() => pool.close());
  const call = (endpoint: McpEndpoint) => pool.call(endpoint, SCOPE, 'act', {}, calling);
  return { call, time, warnings };
}

async function serverOf(answers: HostileAnswers) {
  const server = await startHostileServer({ contentType: 'text/event-stream', ...answers });
  onTestFinished(() => server.stop());
  const { url, received } = server;
  const endpoint: McpEndpoint = {
    id: 'x',
    name: 'x',
    url,
    headers: {},
    trusted: true,
    isolation: 'session',
    idempotentTools: [],
  };
  return { endpoint, count: (name: string) => received.filter((method) => method === name).length };
}

test.each(Object.keys(floods))(
  'a server that never ends %s is refused for a minute, and its calls say so',
  async (kind) => {
    const { answers, first } = floods[kind as keyof typeof floods];
    const { endpoint, count } = await serverOf(answers(messages));
    const { call, time, warnings } = poolOf();
    const message = expect.stringContaining(
      'MCP server "x" has sent more than 500 messages in a minute, the limit of EVERTURN_MCP_MESSAGES_PER_MINUTE',
    );
    // The stream of notifications may reach its bound after the call was answered.
    await call(endpoint);
    await eventually(() => expect(warnings).toEqual([message]));
    const before = count(first);
    for (let i = 0; i < 20; i++) expect(await call(endpoint)).toMatchObject({ status: 'not_sent', message });
    expect(count(first)).toBe(before);
    time.ms += MINUTE_MS;
    await call(endpoint);
    await eventually(() => expect(warnings).toEqual([message, message]));
    expect(count(first)).toBeGreaterThan(before);
  },
);

test('a server that sends few and large messages is refused for their bytes', async () => {
  const { endpoint } = await serverOf(floods['the stream of notifications'].answers(bytes));
  const { call, warnings } = poolOf();
  await call(endpoint);
  const message = 'more than 5 MB in a minute, the limit of EVERTURN_MCP_MEGABYTES_PER_MINUTE';
  await eventually(() => expect(warnings).toEqual([expect.stringContaining(message)]));
});

test('the answers to any number of calls, as event streams, are within the bounds', async () => {
  const server = await TestMcpServer.start({ tools: [{ name: 'act' }], answers: 'sse' });
  onTestFinished(() => server.stop());
  const { call } = poolOf({ messagesPerMinute: 1 });
  for (let i = 0; i < 10; i++) expect(await call(server.endpoint)).toMatchObject({ status: 'result' });
});

test('a call in progress gets the error of its connection', async () => {
  const { endpoint } = await serverOf(floods['the response to a call'].answers(messages));
  const { call } = poolOf();
  const message = expect.stringContaining('EVERTURN_MCP_MESSAGES_PER_MINUTE');
  expect(await call(endpoint)).toMatchObject({ status: 'unknown', message });
});

test.each(Object.keys(floods))('a server that compresses %s is refused, and its calls say why', async (kind) => {
  const { answers } = floods[kind as keyof typeof floods];
  const { endpoint } = await serverOf({ ...answers(messages), gzip: true });
  const { call, warnings } = poolOf();
  const message = expect.stringContaining('has sent an event stream with content-encoding gzip, which is not accepted');
  await call(endpoint);
  await eventually(() => expect(warnings).toEqual([message]));
  expect(await call(endpoint)).toMatchObject({ status: 'not_sent', message });
});

test('a server that ends its stream at once, and has it opened again, is refused at the same bound', async () => {
  const ending = { unit: 'retry: 0\n\n', bytes: 10 };
  const { endpoint, count } = await serverOf({ methods: { '': ending }, protocol: '2025-11-25' });
  const { call, warnings } = poolOf({ messagesPerMinute: 20 });
  await call(endpoint);
  await eventually(() => expect(warnings.length).toBe(1));
  expect(count('')).toBeLessThan(20);
});

test.each([
  ['messages', `${notification}\n`, 'more than 500 messages'],
  ['bytes', `${'x'.repeat(60_000)}\n`, 'more than 5 MB'],
])(
  'a program that never ends its output is ended after too many %s, and not started again',
  async (_, unit, reason) => {
    const program = `
    const result = { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'x', version: '1' } };
    require('node:readline').createInterface(process.stdin).on('line', (line) => {
      const { id, method } = JSON.parse(line);
      if (method === 'tools/call') {
        const flood = () => process.stdout.write(${JSON.stringify(unit)}.repeat(10), flood);
        flood();
      } else if (method === 'initialize') console.log(JSON.stringify({ jsonrpc: '2.0', id, result }));
      else if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32601, message: '' } }));
    }).on('close', () => process.exit());`;
    const endpoint = { ...stdioEndpoint(), args: ['-e', program] };
    const { call } = poolOf({});
    const message = expect.stringContaining(`MCP server "test" has sent ${reason}`);
    expect(await call(endpoint)).toMatchObject({ status: 'unknown', message });
    expect(await call(endpoint)).toMatchObject({ status: 'not_sent', message });
  },
);
