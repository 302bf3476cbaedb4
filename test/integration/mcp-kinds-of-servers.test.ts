import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { SCOPE } from '../support/tool-scope.ts';
import { QUESTION } from '../support/mcp-behaviour.ts';
import { KINDS } from '../support/mcp-kinds.ts';
import type { Elicitation } from '../../src/core/records/pending.ts';
import type { CallOptions } from '../../src/mcp/connection.ts';
import { McpPool } from '../../src/mcp/pool.ts';
import { eventually } from '../support/eventually.ts';

const unaborted = new AbortController().signal;

function calling(options: Partial<CallOptions> = {}): CallOptions {
  return { operationId: 'turn_1/call_1', signal: unaborted, timeoutMs: 60_000, ...options };
}

async function start(kind: string) {
  const server = await KINDS[kind]!();
  let now = 0;
  const pool = new McpPool({ allowPrivateUrls: () => false, now: () => now });
  onTestFinished(async () => {
    await pool.close();
    await server.stop();
  });
  const { endpoint } = server;
  const call = (tool: string, args = {}, options?: Partial<CallOptions>) =>
    pool.call(endpoint, SCOPE, tool, args, calling(options));
  const names = async (): Promise<string[]> => {
    const { tools } = await pool.tools(endpoint, SCOPE, unaborted);
    return tools.map(({ name }) => name);
  };
  /** The report of the server about itself and this call. */
  const inspect = async () => {
    const outcome = await call('inspect');
    const [block] = outcome.status === 'result' ? outcome.content : [];
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by the test server
    return JSON.parse(block?.type === 'text' ? block.text : '{}') as {
      meta: Record<string, unknown>;
      headers: Record<string, string>;
      cancelled: number;
    };
  };
  return { server, pool, endpoint, call, names, inspect, sleep: (ms: number) => (now += ms) };
}

/** The features of the protocol of a kind. */
const hasHeaders = (kind: string): boolean => !kind.startsWith('stdio');
const tellsOfChanges = (kind: string): boolean => !kind.includes('without sessions');

describe.each(Object.keys(KINDS))('a server: %s', (kind) => {
  test('all pages of its tools are listed', async () => {
    const { pool, endpoint } = await start(kind);
    const { tools, transport, sessionId } = await pool.tools(endpoint, SCOPE, unaborted);
    const names = ['echo', 'fail', 'refuse', 'inspect', 'wait', 'rename', 'die', 'breed'];
    expect(tools.map(({ name }) => name)).toEqual(names);
    expect(tools[3]).toEqual({
      name: 'inspect',
      description: 'does inspect',
      inputSchema: { type: 'object', properties: {} },
      annotations: { readOnlyHint: true },
    });
    expect(transport).toBe(kind.includes('SSE') ? 'sse' : kind.startsWith('stdio') ? 'stdio' : 'streamable-http');
    expect(sessionId === null).toBe(!kind.includes('with sessions'));
  });

  test('returns a result with its structured content', async () => {
    const { call } = await start(kind);
    expect(await call('echo', { text: 'héllo\n"you"' })).toMatchObject({
      status: 'result',
      isError: false,
      content: [{ type: 'text', text: '{"text":"héllo\\n\\"you\\""}' }],
      structuredContent: { text: 'héllo\n"you"' },
    });
  });

  // Without sessions the answer would reach another server than the one that has asked.
  test.skipIf(kind.includes('without sessions'))('asks the user during a call', async () => {
    const { call } = await start(kind);
    const answer = { action: 'accept' as const, content: { name: 'Ann' } };
    const questions: Elicitation[] = [];
    const onQuestion = (question: Elicitation) => {
      questions.push(question);
      return Promise.resolve(answer);
    };
    let outcome = await call('ask', {}, { onQuestion });
    if (outcome.status === 'input_required') {
      const [[key, question]] = outcome.request.questions as [[string, Elicitation]];
      questions.push(question);
      outcome = await call('ask', {}, { onQuestion, input: { answers: { [key]: answer } } });
    }
    expect(questions).toEqual([{ mode: 'form', ...QUESTION }]);
    expect(outcome).toMatchObject({ status: 'result', content: [{ type: 'text', text: JSON.stringify(answer) }] });
  });

  test('returns a result that says that the tool failed, and an error instead of a result', async () => {
    const { call } = await start(kind);
    expect(await call('fail')).toMatchObject({
      status: 'result',
      isError: true,
      content: [{ type: 'text', text: 'out of paper' }],
    });
    expect(await call('refuse')).toMatchObject({
      status: 'rejected',
      message: 'MCP server "test" answered with an error: not on Sundays',
    });
    expect(await call('nothing')).toMatchObject({
      status: 'rejected',
      message: expect.stringContaining('Unknown tool: nothing'),
    });
  });

  test('returns a large result', async () => {
    const { call } = await start(kind);
    const text = 'ü'.repeat(1_000_000);
    expect(await call('echo', { text })).toMatchObject({ status: 'result', structuredContent: { text } });
  });

  test('receives the operation id in all supported ways', async () => {
    const { inspect } = await start(kind);
    const { meta, headers } = await inspect();
    expect(meta['io.everturn/operation-id']).toBe('turn_1/call_1');
    if (hasHeaders(kind)) expect(headers['idempotency-key']).toBe('turn_1/call_1');
  });

  test('a call reports its progress; a cancelled one is of unknown outcome, and the tool is notified', async () => {
    const { call, inspect } = await start(kind);
    const cancel = new AbortController();
    const onProgress = vi.fn<() => void>();
    const outcome = call('wait', {}, { signal: cancel.signal, onProgress });
    await eventually(() => expect(onProgress).toHaveBeenCalledTimes(3));
    cancel.abort();
    expect(await outcome).toMatchObject({
      status: 'unknown',
      message: 'MCP server "test" had not answered when the call was cancelled',
    });
    await expect.poll(async () => (await inspect()).cancelled).toBe(1);
  });

  test('a call that exceeds its time is of unknown outcome, and the tool is notified', async () => {
    const { call, inspect } = await start(kind);
    await inspect();
    const begun = Promise.withResolvers<void>();
    // The time-out is a timer of the SDK: it fires after the tool has started.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const outcome = call('wait', {}, { timeoutMs: 100, onProgress: () => begun.resolve() });
    await begun.promise;
    vi.advanceTimersByTime(100);
    expect(await outcome).toMatchObject({
      status: 'unknown',
      message: 'MCP server "test" did not answer within 0.1 s',
    });
    vi.useRealTimers();
    await expect.poll(async () => (await inspect()).cancelled).toBe(1);
  });

  test('handles many concurrent calls', async () => {
    const { call } = await start(kind);
    const texts = Array.from({ length: 50 }, (_, i) => String(i));
    const outcomes = await Promise.all(texts.map((text) => call('echo', { text })));
    expect(outcomes.map((one) => one.status === 'result' && one.structuredContent)).toEqual(
      texts.map((text) => ({ text })),
    );
  });

  test('changes of its tools are noticed', async () => {
    const { call, names, sleep } = await start(kind);
    expect(await names()).not.toContain('renamed');
    if (tellsOfChanges(kind)) {
      // Changes are sent only after the server has agreed to, which is after the first list.
      await eventually(async () => {
        await call('rename');
        expect(await names()).toContain('renamed');
      });
    } else {
      await call('rename');
      sleep(60_000);
      expect(await names()).toContain('renamed');
    }
  });

  test('is reconnected after a restart, and no call is lost', async () => {
    const { server, call, names, sleep } = await start(kind);
    expect(await call('echo', { text: 'a' })).toMatchObject({ status: 'result' });
    await server.restart();
    await eventually(async () => {
      sleep(60_000);
      expect(await names()).toHaveLength(8);
    });
    expect(await call('echo', { text: 'b' })).toMatchObject({ status: 'result' });
  });

  // A program does not stop by itself.
  if (hasHeaders(kind)) {
    test('that stops during a call leaves an unknown outcome', async () => {
      const { server, call } = await start(kind);
      const onProgress = vi.fn<() => void>();
      const outcome = call('wait', {}, { onProgress });
      await eventually(() => expect(onProgress).toHaveBeenCalled());
      await server.restart();
      expect(await outcome).toMatchObject({ status: 'unknown' });
    });
  }

  test('closing the pool ends the calls in flight', async () => {
    const { pool, endpoint, call } = await start(kind);
    const onProgress = vi.fn<() => void>();
    const outcome = call('wait', {}, { onProgress });
    await eventually(() => expect(onProgress).toHaveBeenCalled());
    await pool.close();
    expect(await outcome).toMatchObject({ status: 'unknown' });
    expect(await call('echo')).toMatchObject({ status: 'not_sent' });
    await expect(pool.tools(endpoint, SCOPE, unaborted)).rejects.toThrow('shutting down');
  });
});
