import { afterAll, beforeAll, expect, test } from 'vitest';
import type { AnySessionResource } from '../../src/api/sessions/wire/resources.ts';
import { ApiClient } from '../support/api-client.ts';
import { eventually } from '../support/eventually.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** The states of sessions and drafts of the Sessions API, single and in lists. */

const SESSIONS = '/v1/agents/sessions';
const DRAFTS = '/v1/agents/draft-sessions';
const OWNED = '/v1/x/agents/owned-sessions';

let server: TestServer;
let ann: ApiClient;
let root: ApiClient;
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'ann=key-of-ann,root:admin=key-of-root' },
    mcp: { tools: [{ name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' }] },
  });
  [ann, root] = ['key-of-ann', 'key-of-root'].map((key) => new ApiClient(server.api.url, key)) as [
    ApiClient,
    ApiClient,
  ];
});
afterAll(() => server.stop());

type Listed = Pick<AnySessionResource, 'id' | 'state' | 'waiting_for'>;

async function expectStates(expected: Map<string, Listed['state']>): Promise<void> {
  await eventually(async () => {
    const all = await ann.list<Listed>(OWNED, 100);
    expect(new Map(all.map(({ id, state }) => [id, state]))).toEqual(expected);
  });
  for (const state of new Set(expected.values())) {
    const ids = [...expected].flatMap(([id, its]) => (its === state ? [id] : []));
    const found = await ann.list<Listed>(`${OWNED}?state=${state}`, 2);
    expect([state, found.map(({ id }) => id).toSorted()]).toEqual([state, ids.toSorted()]);
  }
}

test('sessions and drafts are listed with their states and what they wait for, and found by their states', async () => {
  const question = use({ name: 'ask_user_question', id: 'q1', args: { question: 'Why?' } });
  const open = held(
    () => undefined,
    (call) => call.finish(),
  );
  const write = use({ name: 'write', id: 'w1', args: {} });
  const step = held(
    () => undefined,
    (call) => {
      call.toolCall('ask_user_question', { question: 'Why?' }, 'q1');
      call.finish();
    },
  );
  const scripts = {
    answers: say('Yes.'),
    fails: (call: Parameters<typeof open.script>[0]) => call.fail(400, 'no'),
    asks: question,
    'asks and ends': question,
    works: open.script,
    approves: write,
    holds: step.script,
    closes: say('Bye.'),
  };
  const mcp = [{ type: 'truefoundry-mcp-registry', name: 'test', require_approval_for_tools: ['*'] }];
  const turns = new Map<string, { id: string; turnId: string }>();
  for (const [name, script] of Object.entries(scripts)) {
    const model = name.replaceAll(' ', '-');
    const config = name === 'asks and ends' ? {} : { pause: 'wait' as const };
    await root.putAgent(model, { model: { name: model }, ...(name === 'approves' && { mcp_servers: mcp }), config });
    server.model.script(model, script, open.script);
    const id = await ann.createSession(model);
    const turn = ann.turn(id, 'hi');
    const { turn_id: turnId } = await turn.type('turn.created');
    turns.set(name, { id, turnId });
    if (name === 'holds') {
      await step.reached;
      expect((await ann.send('POST', `${SESSIONS}/${id}/pause`, {})).status).toBe(200);
      step.release();
    }
    if (name === 'closes') {
      await turn.done;
      await ann.send('POST', `${SESSIONS}/${id}/cancel`, { close: true });
    }
  }
  const { data: draft } = (await ann.send('POST', DRAFTS, { agent_spec: { model: { name: 'answers' } } })).body;
  const of = (name: string) => turns.get(name) ?? expect.fail(`no session ${name}`);
  const states = new Map<string, Listed['state']>([
    [of('answers').id, 'idle'],
    [of('fails').id, 'error'],
    [of('asks').id, 'waiting_client'],
    [of('asks and ends').id, 'waiting_client'],
    [of('works').id, 'running'],
    [of('approves').id, 'waiting_person'],
    [of('holds').id, 'paused'],
    [of('closes').id, 'closed'],
    [draft.id, 'idle'],
  ]);
  await expectStates(states);
  const waiting = async (name: string) => (await ann.get(`${SESSIONS}/${of(name).id}`)).data.waiting_for;
  for (const name of ['asks', 'asks and ends']) {
    expect(await waiting(name)).toEqual([{ kind: 'response', turn_id: of(name).turnId, tool_call_id: 'q1' }]);
  }
  expect(await waiting('approves')).toEqual([
    { kind: 'approval', turn_id: of('approves').turnId, tool_call_id: expect.any(String) },
  ]);
  expect(await waiting('works')).toEqual([]);
  for (const [id, state] of states) {
    const path = id === draft.id ? DRAFTS : SESSIONS;
    expect([id, (await ann.get(`${path}/${id}`)).data.state]).toEqual([id, state]);
  }
  const refused = await ann.send('GET', `${SESSIONS}?state=sleeping`);
  expect([refused.status, JSON.stringify(refused.body)]).toEqual([400, expect.stringContaining('state')]);
  open.release();
});

test('a session is idle for a client that has seen the end of its turn, before the catalog is', async () => {
  await root.putAgent('quick', { model: { name: 'quick' } });
  server.model.script('quick', say('Done.'));
  const id = await ann.createSession('quick');
  await ann.turn(id, 'hi').done;
  expect((await ann.get(`${SESSIONS}/${id}`)).data.state).toBe('idle');
});

test('a client that has seen the end of a turn finds what its session waits for', async () => {
  await root.putAgent('asking-at-once', { model: { name: 'asking-at-once' } });
  for (let n = 0; n < 3; n++) {
    server.model.script('asking-at-once', use({ name: 'ask_user_question', id: `q${n}`, args: { question: 'Why?' } }));
    const id = await ann.createSession('asking-at-once');
    const turn = ann.turn(id, 'hi');
    await turn.done;
    const { state, waiting_for: waiting } = (await ann.get(`${SESSIONS}/${id}`)).data;
    const call = { kind: 'response', turn_id: await turn.turnId(), tool_call_id: `q${n}` };
    expect({ state, waiting }).toEqual({ state: 'waiting_client', waiting: [call] });
  }
});
