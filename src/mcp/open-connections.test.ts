import { setImmediate } from 'node:timers/promises';
import { expect, onTestFinished, test, vi } from 'vitest';
import { stdioEndpoint } from '../../test/support/mcp-kinds.ts';
import { McpConnection, type ConnectionOptions } from './connection.ts';
import { OpenConnections } from './open-connections.ts';
import type { ServerTransport } from './transport.ts';

/** Programs of given sizes: what is opened stays so until it is closed; what begins to start does not end. */
function start({ maxBytes, sizes }: { maxBytes: number; sizes: Record<number, number> }) {
  const closed: number[] = [];
  const memory = vi.fn((pids: ReadonlySet<number>) =>
    Promise.resolve(new Map([...pids].map((pid) => [pid, sizes[pid] ?? 0]))),
  );
  const connections = new OpenConnections({ max: 50, maxBytes }, memory);
  const open = vi.spyOn(McpConnection, 'open');
  onTestFinished(() => open.mockRestore());
  const options = {} as ConnectionOptions;
  const program = (pid: number, isInUse = false) => {
    const ended = Promise.withResolvers<void>();
    const close = () => {
      closed.push(pid);
      ended.resolve();
      return ended.promise;
    };
    const connection: Pick<McpConnection, 'pid' | 'isInUse' | 'close' | 'closed'> = {
      pid,
      isInUse,
      close,
      closed: ended.promise,
    };
    open.mockResolvedValueOnce(connection as McpConnection);
    return connections.open(stdioEndpoint(), options);
  };
  const hanging = (pid: number) => {
    const opened = Promise.withResolvers<McpConnection>();
    open.mockImplementationOnce((_, { onTry }) => {
      onTry?.({ pid } as ServerTransport);
      return opened.promise;
    });
    void connections.open(stdioEndpoint(), options);
    return setImmediate();
  };
  return { closed, memory, program, hanging };
}

test('no program is closed if those in use take all of the memory', async () => {
  const { closed, program } = start({ maxBytes: 100, sizes: { 1: 40, 2: 120 } });
  await program(1);
  await program(2, true);
  await expect(program(3)).rejects.toThrow('cannot be started');
  expect(closed).toEqual([]);
});

test('only programs that free memory are closed, the one that has been idle longest first', async () => {
  const { closed, program } = start({ maxBytes: 100, sizes: { 1: 0, 2: 60, 3: 30, 4: 30 } });
  for (const pid of [1, 2, 3, 4, 5]) await program(pid);
  expect(closed).toEqual([2]);
});

test('programs that are starting count, too', async () => {
  const { closed, program, hanging } = start({ maxBytes: 100, sizes: { 1: 40, 2: 120 } });
  await program(1);
  await hanging(2);
  await expect(program(3)).rejects.toThrow('are starting, take 0 MB');
  expect(closed).toEqual([]);
});

test('no program is closed twice, or for two that start at once', async () => {
  const { closed, program } = start({ maxBytes: 100, sizes: { 1: 60, 2: 60 } });
  await program(1);
  await program(2);
  await Promise.all([program(3), program(4)]);
  expect(closed).toEqual([1]);
});
