import { afterAll, beforeAll, expect, test } from 'vitest';
import { folded } from '../support/api-client.ts';
import { say, use } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: ({ at }) => `you see ${String(at)}` },
        { name: 'write', annotations: { readOnlyHint: false, destructiveHint: false }, handler: () => 'written' },
      ],
    },
  });
});
afterAll(() => server.stop());

const onTest = { mcp_servers: [{ type: 'truefoundry-mcp-registry' as const, name: 'test' }] };

test('the golden stream: base, deltas, a last delta; tools; the end', async () => {
  const chat = await server.chat({
    scripts: [use({ name: 'look', args: { at: 'the sea' } }), say('All is well.')],
    spec: onTest,
  });
  const reader = chat.turn('look around');
  const frames = await reader.done;
  expect(frames.map(({ type }) => type)).toEqual([
    'turn.created',
    'mcp.initialize',
    'model.message',
    'model.message.delta',
    'model.message.delta',
    'model.message.delta',
    'tool.response',
    'model.message',
    'model.message.delta',
    'model.message.delta',
    'model.message.delta',
    'model.message.delta',
    'turn.done',
  ]);
  expect(frames.map(({ sequence_number: n }) => n)).toEqual([
    1_000_000, 2_000_000, 2_000_001, 2_000_002, 2_000_003, 3_000_000, 4_000_000, 4_000_001, 4_000_002, 4_000_003,
    4_000_004, 5_000_000, 6_000_000,
  ]);
  expect(await reader.end()).toMatchObject({
    status: 'done',
    output: { content: 'All is well.', finish_reason: 'stop' },
    required_actions: [],
    metrics: { total_input_tokens: 20, total_output_tokens: 10, total_tokens: 30 },
  });
  // What the stream folds to is what the lists say.
  const turnId = await reader.turnId();
  const listed = await server.api.list<object>(`${chat.path}/turns/${turnId}/events`);
  expect(folded(frames).slice(1, -1)).toEqual(listed);
  const session = await server.api.list<{ turn_id: string; event: object }>(`${chat.path}/events`);
  expect(session.map(({ event }) => event).reverse()).toEqual(folded(frames));
  // The model was given the tool's result behind its call.
  expect(chat.requests()[1]?.messages.map(({ role, content }) => [role, content])).toEqual([
    ['user', 'look around'],
    ['assistant', null],
    ['tool', 'you see the sea'],
  ]);
});
