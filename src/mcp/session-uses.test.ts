import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { eventually } from '../../test/support/eventually.ts';
import { isAlive } from '../../test/support/is-alive.ts';
import { stdioEndpoint } from '../../test/support/mcp-kinds.ts';
import { TestMcpServer } from '../../test/support/mcp-server.ts';
import { toolScope } from '../../test/support/tool-scope.ts';
import { McpPool } from './pool.ts';
import { SessionUses } from './session-uses.ts';

/** The watches of sessions, which tests report as deleted. */
function watching() {
  const watches = new Map<string, Set<() => void>>();
  return {
    watch: (sessionId: string, onDeleted: () => void): Disposable => {
      const listeners = watches.get(sessionId) ?? new Set();
      watches.set(sessionId, listeners.add(onDeleted));
      return { [Symbol.dispose]: () => void listeners.delete(onDeleted) };
    },
    remove: (sessionId: string) => {
      for (const onDeleted of watches.get(sessionId) ?? []) onDeleted();
    },
    get open() {
      return [...watches.values()].reduce((sum, { size }) => sum + size, 0);
    },
  };
}

function connection() {
  const closed = Promise.withResolvers<void>();
  const calls: string[] = [];
  return {
    takesCalls: true,
    closed: closed.promise,
    calls,
    retire: () => void calls.push('retire'),
    close: () => {
      calls.push('close');
      closed.resolve();
      return closed.promise;
    },
  };
}

describe('a connection', () => {
  test('ends with the last of the sessions that have used it, its open calls 5 s later', () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const { watch, remove } = watching();
    const [uses, one] = [new SessionUses(watch), connection()];
    for (const id of ['ses_1', 'ses_2', 'ses_1']) uses.add(one, id);
    remove('ses_1');
    remove('ses_1');
    expect(one.calls).toEqual([]);
    remove('ses_2');
    expect(one.calls).toEqual(['retire']);
    vi.advanceTimersByTime(5_000);
    expect(one.calls).toEqual(['retire', 'close']);
  });

  test('that is closed watches no session', async () => {
    const watched = watching();
    const [uses, one] = [new SessionUses(watched.watch), connection()];
    for (const id of ['ses_1', 'ses_2']) uses.add(one, id);
    expect(watched.open).toBe(2);
    await one.close();
    expect(watched.open).toBe(0);
    one.takesCalls = false;
    uses.add(one, 'ses_3');
    expect(watched.open).toBe(0);
  });

  test('of more than 100 sessions belongs to none', () => {
    const watched = watching();
    const [uses, one] = [new SessionUses(watched.watch), connection()];
    const ids = Array.from({ length: 101 }, (_, i) => `ses_${i}`);
    for (const id of ids) uses.add(one, id);
    uses.add(one, 'ses_0');
    expect(watched.open).toBe(0);
    for (const id of ids) watched.remove(id);
    expect(one.calls).toEqual([]);
  });
});

const unaborted = new AbortController().signal;

test('a deleted session closes its event stream at the server, and no other', async () => {
  const { watch, remove } = watching();
  const server = await TestMcpServer.start({ tools: [], protocol: '2025-11-25' });
  const pool = new McpPool({ allowPrivateUrls: () => true, watchSession: watch });
  onTestFinished(async () => {
    await pool.close();
    await server.stop();
  });
  for (const id of ['ses_1', 'ses_2']) await pool.tools(server.endpoint, toolScope(id), unaborted);
  await eventually(() => expect(server.openRequests).toBe(2));
  remove('ses_1');
  await eventually(() => expect(server.openRequests).toBe(1));
  expect(server.count('DELETE')).toBe(1);
  await pool.tools(server.endpoint, toolScope('ses_2'), unaborted);
  expect(server.count('initialize')).toBe(2);
});

test('a deleted session ends its program', async () => {
  const { watch, remove } = watching();
  const pool = new McpPool({ allowPrivateUrls: () => true, watchSession: watch });
  onTestFinished(() => pool.close());
  const endpoint = { ...stdioEndpoint('2025-11-25'), isolation: 'session' as const };
  const calling = { operationId: 'turn_1/call_1', signal: unaborted, timeoutMs: 60_000 };
  const outcome = await pool.call(endpoint, toolScope('ses_1'), 'inspect', {}, calling);
  const [block] = outcome.status === 'result' ? outcome.content : [];
  const pid: unknown = block?.type === 'text' ? JSON.parse(block.text).pid : undefined;
  if (typeof pid !== 'number') throw new Error(JSON.stringify(outcome));
  remove('ses_1');
  await eventually(() => expect(isAlive(pid)).toBe(false));
});
