import { Client, Connection } from '@temporalio/client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { turnWorkflowId } from '../../../src/core/temporal-names.ts';
import { folded, inOrder } from '../../support/api-client.ts';
import { startCodeServer } from '../../support/code-server.ts';
import { cell, responsesIn } from '../../support/code-turns.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { TestMcpServer } from '../../support/mcp-server.ts';
import { startOwnTemporal, type OwnTemporal } from '../../support/own-temporal.ts';
import { say } from '../../support/scripted-model.ts';
import { testConverter } from '../../support/temporal-client.ts';
import type { TestServer } from '../../support/test-server.ts';

/** Code that calls so often that its turn continues as new: Temporal suggests it after 300 events, and not after 4,000. */

let temporal: OwnTemporal;
let server: TestServer;
let lab: TestMcpServer;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  temporal = await startOwnTemporal({
    'limit.historyCount.suggestContinueAsNew': 300,
    // Otherwise runs as short as these would each be delayed by a second.
    'history.continueAsNewMinInterval': '20ms',
  });
  lab = await TestMcpServer.start({
    tools: [
      {
        name: 'add',
        annotations: { readOnlyHint: false, destructiveHint: false },
        inputSchema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
        handler: ({ n }) => `added ${String(n)}`,
      },
    ],
  });
  server = await startCodeServer({ TEMPORAL_ADDRESS: temporal.address });
});
afterAll(async () => {
  await server.stop();
  await lab.stop();
  await temporal.stop();
});

const CALLS = 500;
/** So many of these are made one after the other. */
const ALONE = 52;

test('500 calls of one cell have one effect each, in the runs of one turn, and lists have all of them', async () => {
  const tools = { allowed_callers: ['code' as const], require_approval_for_tools: [] };
  const chat = await server.chat({
    spec: {
      code_actions: { approvals: 'allow' },
      mcp_servers: [{ type: 'inline', name: 'lab', url: lab.url, ...tools }],
    },
  });
  const code = [
    'import asyncio',
    'from mcptools.lab.add import run, run_async, Params',
    `got = [run(Params(n=n)) for n in range(${ALONE})]`,
    `got += await asyncio.gather(*(run_async(Params(n=n)) for n in range(${ALONE}, ${CALLS})))`,
    `print(got == [f"added {n}" for n in range(${CALLS})], len(got))`,
  ].join('\n');
  chat.script(cell(code), say('All done.'));
  const reader = chat.turn('go');
  const turnId = await reader.turnId();
  const frames = await reader.done;
  expect(responsesIn(frames)).toMatchObject([
    { outcome: 'succeeded', content: `True ${CALLS}`, execution: { exit: 'ok', tool_calls: CALLS } },
  ]);
  await expect.poll(() => continued(turnId)).toBeGreaterThan(2);

  const numbers = lab.calls.map(({ arguments: { n } }) => Number(n)).toSorted((a, b) => a - b);
  expect(numbers).toEqual(Array.from({ length: CALLS }, (_, n) => n));
  const operations = lab.calls.map(({ meta }) => /turn_\w+\/code_\w+\/call_\d+/.exec(JSON.stringify(meta))?.[0]);
  expect(new Set(operations).size).toBe(CALLS);
  expect(operations).not.toContain(undefined);

  // The stream, one that is read afterwards, and the pages of both lists have the same.
  const whole = folded(frames);
  expect(inOrder(folded(await server.api.subscribe(chat.sessionId, turnId).done))).toEqual(inOrder(whole));
  const listed = await server.api.list<object>(`${chat.path}/turns/${turnId}/events`);
  expect(inOrder(listed)).toEqual(inOrder(whole.slice(1, -1)));
  const ofSession = await server.api.list<{ event: { type: string; tool_call_id?: string } }>(`${chat.path}/events`);
  const results = ofSession.flatMap(({ event }) => (event.type === 'tool.response' ? event.tool_call_id : []));
  expect(results).toHaveLength(CALLS + 1);
  expect(new Set(results).size).toBe(CALLS + 1);
}, 240_000);

/** How many runs of the workflow of a turn have ended by continuing as new, as far as Temporal lists them yet. */
async function continued(turnId: string): Promise<number> {
  const connection = await Connection.connect({ address: temporal.address });
  const client = new Client({ connection, namespace: temporal.namespace, ...testConverter() });
  const query = `WorkflowId = '${turnWorkflowId(turnId)}' AND ExecutionStatus = 'ContinuedAsNew'`;
  let runs = 0;
  for await (const _ of client.workflow.list({ query })) runs += 1;
  await connection.close();
  return runs;
}
