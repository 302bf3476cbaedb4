import proto from '@temporalio/proto';
import { loadDataConverter } from '../support/sdk-internals.ts';
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from 'vitest';
import { listen } from '../../src/demo/local-server.ts';
import { Cipher } from '../../src/encryption/cipher.ts';
import { dataConverterFor, failureMessage } from '../../src/temporal/data-converter.ts';
import { use } from '../support/scripted-model.ts';
import { messageFor } from './support/plan.ts';
import { sized } from './support/sized.ts';
import { World } from './support/world.ts';

/** Row 10: content that is larger, deeper or stranger than expected. */

const UNHANDLED_COMMAND =
  proto.temporal.api.enums.v1.WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND;

const CALLS = sized({ brief: 100, full: 300 });

let world: World;
let sessionId: string;
beforeAll(async () => {
  // The usage of a summary is in the metrics of a turn, and in none of its messages.
  world = await World.start({ spec: { config: { context_management: { compaction: { enabled: false } } } } });
  sessionId = await world.session();
});
/** After each of these the session accepts the next message, and nothing is stuck. */
afterEach(async () => {
  const turn = await world.turn(sessionId, world.plan({ say: 'Still here.' }));
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'Still here.' } });
  expect(await failedWorkflowTasks()).toEqual([]);
});
afterAll(() => world.checkAndStop());

async function failedWorkflowTasks(): Promise<string[]> {
  const { client } = await world.temporal.operator();
  const converter = loadDataConverter(dataConverterFor(new Cipher(world.config.encryptionKeys)));
  const failed: string[] = [];
  for await (const { workflowId, runId } of client.workflow.list()) {
    const history = await client.workflow.getHandle(workflowId, runId).fetchHistory();
    for (const { workflowTaskFailedEventAttributes: failure } of history.events ?? []) {
      // Temporal repeats the last task of a workflow that got a signal while it ended.
      if (!failure || failure.cause === UNHANDLED_COMMAND) continue;
      failed.push(`${workflowId}: ${failure.cause} ${await failureMessage(converter, failure.failure)}`);
    }
  }
  return failed;
}

function user(content: unknown): Record<string, unknown>[] {
  return [{ type: 'user.message', content }];
}

/** As the session's owner. */
function authorization(): { authorization: string } {
  return { authorization: `Bearer ${world.recorder.ownerOf(sessionId).key}` };
}

interface Ended {
  type: string;
  tool_call_id?: string;
  outcome?: string;
  content?: string;
}

async function responses(turnId: string): Promise<Ended[]> {
  const events = await world.recorder.api.list<Ended>(`/v1/agents/sessions/${sessionId}/turns/${turnId}/events`);
  return events.filter(({ type }) => type === 'tool.response');
}

test('a tool result of 3 MB is stored as a file, and the model gets its beginning', async () => {
  const turn = await world.turn(
    sessionId,
    world.plan({ say: 'I look.', tools: [{ name: 'look', args: { size: 3_000_000 } }] }, { say: 'A lot.' }),
  );
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'A lot.' } });
  const [response] = await responses(turn.turnId);
  const { content = '', outcome } = response ?? {};
  expect([outcome, content.length < 500_000]).toEqual(['succeeded', true]);
  const [path = ''] = /\/v1\/agents\/sessions\/[^\s"]*\/files\/[0-9a-f]+/.exec(content) ?? [];
  const file = await fetch(world.recorder.api.url + path, { headers: authorization() });
  expect((await file.text()).length).toBeGreaterThan(3_000_000);
});

test(`${CALLS} tool calls in one message are each executed once`, async () => {
  const tools = Array.from({ length: CALLS }, (_, i) => ({ name: i % 2 ? 'look' : 'pay' }));
  const plan = world.plan({ say: 'All at once.', tools }, { say: 'Done with all.' });
  const turn = await world.turn(sessionId, plan);
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'Done with all.' } });
  const outcomes = await responses(turn.turnId);
  expect(outcomes.map(({ outcome }) => outcome)).toEqual(tools.map(() => 'succeeded'));
});

test('300 parts of 100 KiB are a turn; 320 exceed the limit of a body', async () => {
  const parts = (count: number) =>
    Array.from({ length: count }, (_, i) => ({ type: 'text', text: `${i} `.padEnd(100 * 1024, 'x') }));
  const refused = await world.recorder.send(sessionId, user(parts(320)));
  expect(refused).toMatchObject({ outcome: 'refused', status: 413, code: 'body_too_large' });
  const turn = await world.recorder.turn(sessionId, user(parts(300)));
  expect(await turn.done).toMatchObject({ status: 'done' });
});

test('a file of 25 MB is rejected in a body, and accepted by URL', async () => {
  const bytes = Buffer.alloc(25 * 1024 * 1024, 'x');
  const part = (data: string) => user([{ type: 'file', name: 'big.txt', data }]);
  const inBody = await world.recorder.send(sessionId, part(`data:text/plain;base64,${bytes.toString('base64')}`));
  expect(inBody).toMatchObject({ outcome: 'refused', status: 413 });
  const server = await listen(
    (_, response) => response.writeHead(200, { 'content-type': 'text/plain' }).end(bytes),
    '/big.txt',
  );
  onTestFinished(() => server.stop());
  const byUrl = await world.recorder.send(sessionId, part(server.url));
  expect(byUrl).toMatchObject({ outcome: 'accepted' });
});

test.each([
  [
    'invalid UTF-8',
    Buffer.concat([
      Buffer.from('{"input":[{"type":"user.message","content":"'),
      Buffer.from([0xff, 0xc0, 0x80]),
      Buffer.from('"}]}'),
    ]),
  ],
  ['10,000 levels', Buffer.from(`{"input":${'['.repeat(10_000)}${']'.repeat(10_000)}}`)],
])('a body of %s is rejected', async (_, body) => {
  const response = await fetch(`${world.recorder.api.url}/v1/agents/sessions/${sessionId}/turns`, {
    method: 'POST',
    headers: { ...authorization(), 'content-type': 'application/json' },
    body,
  });
  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({
    error: { message: expect.any(String), type: 'invalid_request_error' },
  });
});

test('NUL bytes, lone surrogates and every control character are preserved', async () => {
  const strange = `\u0000 ${Array.from({ length: 32 }, (_, i) => String.fromCharCode(i)).join('')} \u007f\u009b\u202e\ufeff end`;
  const turn = await world.turn(
    sessionId,
    world.plan({ say: `I say ${strange}`, tools: [{ name: 'pay', args: { note: strange } }] }, { say: 'It is paid.' }),
  );
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'It is paid.' } });
  const effect = world.ledger.effects.findLast(({ operation }) => operation.startsWith(turn.turnId));
  expect(effect?.arguments).toEqual({ note: strange });
  await world.recorder.turn(sessionId, user(strange)).then((one) => one.done);
});

test.each([
  ['arguments of 10,000 levels', '{"a":'.repeat(10_000) + '1' + '}'.repeat(10_000)],
  ['arguments that are no JSON', '{"amount": 1'],
  ['arguments with a lone surrogate', '{"amount": "\\ud800"}'],
  ['arguments of 2 MB', JSON.stringify({ note: 'x'.repeat(2_000_000) })],
])('a call with %s has one outcome, and the turn continues', async (name, args) => {
  const model = `poison ${name}`;
  world.model.script(model, use({ name: 'pay', args, id: name.replaceAll(/\W/g, '_') }));
  const agent = 'poisoned';
  const onTest = { type: 'truefoundry-mcp-registry', name: 'test', require_approval_for_tools: [] };
  const spec = { model: { name: model }, mcp_servers: [onTest] };
  await world.putAgent(agent, spec);
  const turn = await world.recorder.turn(await world.session({ agent }), user('pay'));
  expect(await turn.done).toMatchObject({ status: 'done', output: { content: 'Done.' } });
});

test('a message whose plan has 100 KB of text contains it once', async () => {
  const plan = world.plan({ say: 'word '.repeat(20_000).trim() });
  const turn = await world.recorder.turn(sessionId, user(messageFor(plan)));
  expect(await turn.done).toMatchObject({ status: 'done' });
});
