import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient } from '../support/api-client.ts';
import { ProtectedMcpServer, TestBrowser } from '../support/authorization-server.ts';
import { say, use } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let notes: ProtectedMcpServer;
let server: TestServer;
let root: ApiClient;
beforeAll(async () => {
  notes = await ProtectedMcpServer.start();
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,ann=key-of-ann,bob=key-of-bob' },
    servers: { notes: { url: notes.mcp.url } },
  });
  root = new ApiClient(server.server.url, 'key-of-root');
});
afterAll(async () => {
  await server.stop();
  await notes.stop();
});

const onNotes = { mcp_servers: [{ type: 'truefoundry-mcp-registry' as const, name: 'notes' }] };
let agents = 0;

/** A conversation of a subject with its own agent. */
async function chat(subject: 'ann' | 'bob') {
  agents += 1;
  const agent = `notes-${agents}`;
  await root.putAgent(agent, { model: { name: agent }, ...onNotes });
  const api = new ApiClient(server.server.url, `key-of-${subject}`);
  const id = await api.createSession(agent);
  const turn = (input: unknown) => api.turn(id, input);
  return { api, id, agent, turn };
}

/** Runs a turn that ends with the request for a sign-in, and returns its URL. */
async function authUrl({ turn }: Awaited<ReturnType<typeof chat>>, input: unknown = 'list'): Promise<string> {
  const end = await turn(input).end();
  expect(end).toMatchObject({ status: 'done', output: null, required_actions: [{ type: 'mcp.auth_required' }] });
  const [action] = end.status === 'done' ? end.required_actions : [];
  if (action?.type !== 'mcp.auth_required') throw new Error('no sign-in is required');
  return action.mcp_servers[0]?.auth_url ?? '';
}

test('a turn ends with a link; after the sign-in, a turn without input continues', async () => {
  const ann = await chat('ann');
  const url = await authUrl(ann);
  expect(url).toContain(`${server.server.url}/v1/agents/mcp/authorize?state=`);
  const page = await new TestBrowser().open(url);
  expect(page).toMatchObject({ status: 200, text: expect.stringContaining('You are signed in to notes') });
  server.model.script(ann.agent, use({ name: 'list' }), say('Milk.'));
  expect(await ann.turn([]).end()).toMatchObject({ status: 'done', output: { content: 'Milk.' } });
  expect(notes.mcp.calls.map(({ tool }) => tool)).toEqual(['list']);
});
