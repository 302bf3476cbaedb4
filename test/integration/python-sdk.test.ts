import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient } from '../support/api-client.ts';
import { pythonWith } from '../support/python.ts';
import { say, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

const run = promisify(execFile);
const SCRIPT = fileURLToPath(new URL('../python/use_sdk.py', import.meta.url));

let server: TestServer;
let python: string;
beforeAll(async () => {
  python = await pythonWith('truefoundry-gateway-sdk==0.4.2');
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'ann:admin=key-of-ann' },
    mcp: { tools: [{ name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' }] },
  });
}, 240_000);
afterAll(() => server.stop());

test('the unmodified Python SDK completes a session', async () => {
  const { api, model } = server;
  const ann = new ApiClient(api.url, 'key-of-ann');
  await ann.putAgent('python', { model: { name: 'scripted' }, ...onTestServer });
  model.script(
    'scripted',
    say('Hello from the stream.'),
    say('Hello again.'),
    use({ name: 'write', id: 'w1' }, { name: 'write', id: 'w2' }),
    say('Very well.'),
    say('Forked.'),
  );
  const { stdout, stderr } = await run(python, [SCRIPT, api.url, 'python'], { timeout: 120_000 });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toEqual({
    session: { agent: 'python', owner: 'ann' },
    stream: ['turn.created', 'mcp.initialize', 'model.message', 'turn.done'],
    text: 'Hello from the stream.',
    state: 'done',
    resumed: ['model.message', 'turn.done'],
    oneByOne: 'Hello from the stream.',
    listed: ['mcp.initialize', 'model.message'],
    quiet: ['done', 'Hello again.', 15],
    required: ['tool.approval_required', ['w1', 'w2'], null],
    answers: [
      ['w2', expect.stringContaining('not that')],
      ['w1', 'written'],
    ],
    turns: ['done', 'done', 'done', 'done'],
    events: ['turn.done', 'model.message', 'tool.response'],
    fetched: 'stream',
    turn: true,
    fork: true,
    draft: ['session/draft', 'drafted'],
    lists: [[true], ['session', 'session/draft', 'session', 'session', 'session'], ['session/draft']],
    window: [true],
    errors: {
      'unknown agent': ['NotFoundError', 404],
      'unknown session': ['NotFoundError', 404],
      'unknown turn': ['NotFoundError', 404],
      'bad key': ['UnauthorizedError', 401],
      'unknown previous': ['NotFoundError', 404],
      'bad page token': ['BadRequestError', 400],
    },
  });
});

test('the unmodified Python SDK follows a sub-agent, and answers it in the next turn', async () => {
  const { api, model } = server;
  const ann = new ApiClient(api.url, 'key-of-ann');
  await ann.putAgent('delegating', { model: { name: 'delegating' }, ...onTestServer });
  const call = { name: 'create_sub_agent', id: 's1', args: { name: 'clerk', input: 'Write it.' } };
  model.script('delegating', use(call), use({ name: 'write', id: 'w1' }), say('It is written.'), say('All done.'));
  const script = fileURLToPath(new URL('../python/sub_agents.py', import.meta.url));
  const { stdout, stderr } = await run(python, [script, api.url, 'delegating'], { timeout: 120_000 });
  expect(stderr).toBe('');
  expect(JSON.parse(stdout)).toEqual({
    types: [
      ['turn.created', false],
      ['mcp.initialize', false],
      ['model.message', false],
      ['thread.created', true],
      ['model.message', true],
      ['tool.approval_required', true],
      ['turn.done', false],
    ],
    created: ['clerk', 's1', 'clerk', 'Write it.'],
    required: ['tool.approval_required', true, ['w1']],
    resumed: [
      ['tool.response', ['w1', 'written']],
      ['model.message', ['It is written.']],
      ['thread.done', ['clerk', 'done', 'It is written.']],
      ['tool.response', ['s1', '']],
      ['model.message', ['All done.']],
    ],
    state: ['done', 'All done.'],
  });
});
