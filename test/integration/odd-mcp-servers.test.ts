import { describe, expect, onTestFinished, test } from 'vitest';
import { McpPool } from '../../src/mcp/pool.ts';
import { eventually } from '../support/eventually.ts';
import { oddEndpoint, type OddServer } from '../support/odd-mcp-server.ts';
import { SCOPE } from '../support/tool-scope.ts';

const { signal } = new AbortController();

function start(odd: OddServer = {}) {
  const pool = new McpPool({ allowPrivateUrls: () => false });
  onTestFinished(() => pool.close());
  const endpoint = oddEndpoint(odd);
  const calling = { operationId: 'turn_1/call_1', signal, timeoutMs: 60_000 };
  const call = (tool: string, args: Record<string, unknown> = {}) => pool.call(endpoint, SCOPE, tool, args, calling);
  const seen = async (): Promise<{ pid: number; calls: unknown[] }> => {
    const outcome = await call('seen');
    const [block] = outcome.status === 'result' ? outcome.content : [];
    if (block?.type !== 'text') throw new Error(JSON.stringify(outcome));
    return JSON.parse(block.text);
  };
  return { call, seen, list: () => pool.tools(endpoint, SCOPE, signal) };
}

const TOO_LARGE = {
  status: 'result',
  isError: true,
  content: [
    {
      type: 'text',
      text: 'The tool was executed, but its result was not read: its answer is larger than 4 MiB. Request less data per call.',
    },
  ],
};

describe('a result of 5 MB', () => {
  test.each([{}, { idLast: true }])(
    'is cut off (%j), and neither the program nor the calls beside it end',
    async (place) => {
      const { call, seen } = start();
      const { pid } = await seen();
      const held = call('hold');
      await eventually(async () => expect((await seen()).calls).toContainEqual(['hold', {}]));
      expect(await call('big', { bytes: 5_000_000, ...place })).toEqual(TOO_LARGE);
      await call('release');
      expect(await held).toMatchObject({ status: 'result', content: [{ text: 'held' }] });
      expect((await seen()).pid).toBe(pid);
    },
  );

  test('without an id belongs to the only call that has no answer', async () => {
    const { call, seen } = start();
    const { pid } = await seen();
    const held = call('hold');
    await eventually(async () => expect((await seen()).calls).toContainEqual(['hold', {}]));
    const big = call('big', { bytes: 5_000_000, noId: true });
    await eventually(async () => expect((await seen()).calls).toContainEqual(['big', expect.anything()]));
    await call('release');
    expect(await big).toEqual(TOO_LARGE);
    expect(await held).toMatchObject({ content: [{ text: 'held' }] });
    expect((await seen()).pid).toBe(pid);
  });
});
