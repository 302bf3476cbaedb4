import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../../src/engine/new-id.ts';
import { ApiClient, type Answer } from '../../support/api-client.ts';
import { eventually } from '../../support/eventually.ts';
import { TestMcpServer } from '../../support/mcp-server.ts';
import { say, textOf, use } from '../../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../../support/test-server.ts';

let browser: TestMcpServer;
let server: TestServer;
let admin: ApiClient;
let user: ApiClient;
beforeAll(async () => {
  browser = await TestMcpServer.start({
    tools: [{ name: 'goto', annotations: { destructiveHint: true }, handler: () => 'A shop.' }],
    protocol: '2025-11-25',
  });
  const open = { drafts: ['user'], require_approval_for_tools: [] };
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,ann=key-of-ann', EVERTURN_DEFAULT_MODEL: 'the-default' },
    servers: {
      browser: { url: browser.url, environments: ['web', 'workstation'], ...open },
      desktop: { url: browser.url, environments: ['desktop'] },
    },
    mcp: { tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: () => 'looked' }] },
  });
  admin = new ApiClient(server.api.url, 'key-of-root');
  user = new ApiClient(server.api.url, 'key-of-ann');
});
afterAll(async () => {
  await server.stop();
  await browser.stop();
});

const prefix = () => newId('req').replaceAll('_', '-');
const agent = (name: string, more: object = {}) => ({ name, description: '', environments: [], model: name, ...more });
const web = (more: object = {}) => ({ kind: 'web', id: 'shop', start_url: 'https://shop.example.com', ...more });
const start = async (given: unknown, more: object = {}, client = user) =>
  client.send('POST', '/api/v2/sessions', { agent: given, messages: 'Go', ...more });
type Refused = Answer<{ detail: { type: string; loc?: unknown[] }[] }>;
const problem = ({ status, body }: Refused) => [status, body.detail[0]?.type, body.detail[0]?.loc];
const answerOf = async (created: Answer<{ id: string }>) => {
  expect(created.status, JSON.stringify(created.body)).toBe(201);
  return eventually(async () => {
    const { latest_answer: answer, status } = await admin.get(`/api/v2/sessions/${created.body.id}`);
    expect(status.status).toBe('completed');
    return answer;
  });
};
const systemOf = (model: string) => textOf(server.model.requestsTo(model)[0]?.messages[0]);

test('an agent acts in its environment through the MCP server for its kind, and each session has its own connection', async () => {
  const name = prefix();
  server.model.script(name, use({ name: 'goto' }), say('It is a shop.'), use({ name: 'goto' }), say('Still.'));
  const shopper = agent(name, { instructions: 'Be brief.', environments: [web({ mode: { type: 'text' } })] });
  expect(await answerOf(await start(shopper))).toBe('It is a shop.');
  expect(systemOf(name)).toBe(
    'Be brief.\n\nYour tools control an environment of the kind "web" with the id "shop". ' +
      'Begin at https://shop.example.com. Its settings: {"mode":{"type":"text","chunk_size":20000}}.',
  );
  expect(await answerOf(await start(shopper))).toBe('Still.');
  const ids = browser.calls.map(({ headers }) => headers['mcp-session-id']);
  expect(new Set(ids).size).toBe(2);
  const both = agent(name, { environments: [web(), { kind: 'workstation', id: 'office' }] });
  expect((await start(both, { messages: null })).status).toBe(201);
});

test('an environment that this server does not provide is kept, but creates no session', async () => {
  const name = prefix();
  const android = agent(name, { environments: [{ kind: 'android', id: 'phone' }] });
  const loc = ['body', 'agent', 'environments', 0];
  expect(problem(await start(android))).toEqual([422, 'feature_not_available', loc]);
  expect((await admin.send('POST', '/api/v2/agents', android)).status).toBe(201);
  expect(problem(await start(name))).toEqual([422, 'feature_not_available', ['body', 'agent']]);
  // Nor does the Sessions API run it without.
  const other = await user.send('POST', '/v1/agents/sessions', { agent_name: name });
  expect([other.status, other.body.error.message]).toEqual([422, expect.stringContaining('environment:android')]);
  for (const settings of [{ vault_id: 'v' }, { network: { proxy_url: 'http://u:p@proxy.example.com' } }]) {
    const refused = await start(agent(name, { environments: [web(settings)] }));
    expect(problem(refused)).toEqual([422, 'feature_not_available', [...loc, Object.keys(settings)[0]]]);
  }
  expect((await start(agent(name, { environments: [web({ vault_id: null })] }), { messages: null })).status).toBe(201);
});

test('overrides change a registered agent for a session, which then is a definition of the caller', async () => {
  const name = prefix();
  const schema = { type: 'object', properties: { number: { type: 'integer' } }, required: ['number'] };
  await admin.send('POST', '/api/v2/agents', agent(name, { instructions: 'Be brief.', environments: [web()] }));
  server.model.script(name, say('{"number": 23}'));
  const overrides = {
    'agent.answer_format': schema,
    'agent.instructions': 'Be exact.',
    'agent.environments[kind=web].start_url': 'https://other.example.com',
  };
  const created = await start(name, { overrides });
  expect(created.body).toMatchObject({
    agent_revision: 1,
    request: {
      overrides,
      agent: { instructions: 'Be exact.', environments: [{ start_url: 'https://other.example.com' }] },
    },
  });
  expect(await answerOf(created)).toEqual({ number: 23 });
  expect(systemOf(name)).toMatch(/^Be exact\.\n\n.*Begin at https:\/\/other\.example\.com/);

  // Only the operator opens servers to the definitions of users.
  const office = agent(`${name}-office`, { environments: [{ kind: 'desktop', id: 'office' }] });
  await admin.send('POST', '/api/v2/agents', office);
  expect((await start(office.name, { messages: null })).status).toBe(201);
  const changed = { messages: null, overrides: { 'agent.instructions': 'Do something else.' } };
  expect(problem(await start(office.name, changed))).toEqual([403, 'forbidden', undefined]);
  expect((await start(office.name, changed, admin)).status).toBe(201);
});

test('an agent of the Sessions API keeps what this API has no words for when it is changed by overrides', async () => {
  const name = prefix();
  const variables = { tone: 'kind' };
  await admin.putAgent(name, { model: { name }, instructions: 'Be {{tone}}.', variables, ...onTestServer });
  server.model.script(name, use({ name: 'look' }), say('{"seen": true}'));
  const format = { type: 'object', properties: { seen: { type: 'boolean' } } };
  const overrides = { 'agent.answer_format': format, 'agent.reasoning_effort': 'low' };
  expect(await answerOf(await start(name, { overrides }, admin))).toEqual({ seen: true });
  expect(server.model.requestsTo(name)[0]).toMatchObject({ reasoning_effort: 'low' });
  expect(systemOf(name)).toMatch(/^Be kind\./);
  expect(problem(await start(name, { overrides }))).toEqual([403, 'forbidden', undefined]);
});

test('an override that does not fit is refused at its path', async () => {
  const name = prefix();
  for (const [path, value] of [
    ['agent.environments[kind=desktop].id', 'x'],
    ['agent.environments[kind=web].mode.width', 'wide'],
    ['agent.colour', 'red'],
    ['queue', false],
  ] as const) {
    const refused = await start(agent(name, { environments: [web()] }), { overrides: { [path]: value } });
    expect([refused.status, refused.body.detail[0].loc], path).toEqual([422, ['body', 'overrides', path]]);
  }
  const unknown = await start(agent(name), { overrides: { 'agent.skills': ['nothing'] } });
  expect(problem(unknown)).toEqual([422, 'invalid_agent', ['body', 'agent', 'skills', 0]]);
  const many = Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`agent.x${i}`, 1]));
  expect((await start(agent(name), { overrides: many })).status).toBe(422);
});

test('the model is told the time zone of a request, and an agent without a model has the default one', async () => {
  const { model: _, ...plain } = agent(prefix());
  expect(await answerOf(await start(plain, { timezone: 'Europe/Paris' }))).toBe('ok');
  expect(systemOf('the-default')).toBe("The user's time zone is Europe/Paris. Use it for dates and times.");
  expect(problem(await start(plain, { timezone: 'Moon/Base' }))).toEqual([422, 'custom', ['body', 'timezone']]);
});

test('a sub-agent of the Sessions API runs as it is there, also if overrides change its parent', async () => {
  const [boss, helper] = [prefix(), prefix()];
  await admin.putAgent(helper, {
    model: { name: helper },
    instructions: 'Be {{tone}}.',
    variables: { tone: 'kind' },
    ...onTestServer,
  });
  const ask = { name: 'delegate', args: { agent: helper, task: 'Help.' } };
  server.model.script(boss, use(ask), say('Done.'));
  server.model.script(helper, use({ name: 'look' }), say('Helped.'));
  const overrides = { 'agent.instructions': 'Ask.' };
  expect(await answerOf(await start(agent(boss, { subagents: [helper] }), { overrides }, admin))).toBe('Done.');
  expect(systemOf(helper)).toMatch(/^Be kind\./);
  expect(textOf(server.model.requestsTo(helper)[1]?.messages.at(-1))).toBe('looked');
});

test('an agent works with its sub-agents through both APIs', async () => {
  const [boss, helper] = [prefix(), prefix()];
  await admin.send('POST', '/api/v2/agents', agent(helper, { description: 'Helps.' }));
  const created = await admin.send('POST', '/api/v2/agents', agent(boss, { subagents: [helper] }));
  expect(created.status, JSON.stringify(created.body)).toBe(201);
  const ask = { name: 'delegate', args: { agent: helper, task: 'Help.' } };
  server.model.script(boss, use(ask), say('Done.'), use(ask), say('Done again.'));
  server.model.script(helper, say('Helped.'), say('Helped again.'));
  expect(await answerOf(await start(boss))).toBe('Done.');
  const turn = user.turn(await user.createSession(boss), 'Go');
  expect(await turn.end()).toMatchObject({ status: 'done', output: { content: 'Done again.' } });
  const [, first, , second] = server.model.requestsTo(boss).map(({ messages }) => textOf(messages.at(-1)));
  expect([first, second]).toEqual(['Helped.', 'Helped again.']);
});
