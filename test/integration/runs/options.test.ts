import { afterAll, beforeAll, expect, test } from 'vitest';
import { RunAgent, user } from '../../support/runs.ts';
import { say } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** The acceptance cases of the run API that are about what an agent may say of itself, by their numbers in the contract. */

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: { tools: [{ name: 'note', handler: ({ text }) => `noted ${String(text)}` }] },
  });
}, 60_000);
afterAll(() => server.stop());

const agent = (scripts: ConstructorParameters<typeof RunAgent>[1], params: object = {}): RunAgent =>
  new RunAgent(server, scripts, params);
const lookup = { name: 'lookup', description: 'looks up', parameters: { type: 'object' } };

test('21: the options of an agent are in the requests to its model if they are set', async () => {
  const options = {
    temperature: 0.25,
    top_p: 0.5,
    top_k: 7,
    presence_penalty: 0.125,
    frequency_penalty: -0.5,
    seed: 11,
    max_tokens: 99,
    metadata: { team: 'a' },
  };
  const one = agent([say('ok'), say('ok'), say('ok')], { ...options, tools: [lookup], tool_choice: { type: 'none' } });
  expect(await one.run('Go')).toMatchObject({ status: 'completed' });
  expect(one.requests[0]).toMatchObject({ ...options, tool_choice: 'none' });
  const chosen = agent([say('ok')], { tools: [lookup], tool_choice: { type: 'tool', tool_name: 'lookup' } });
  await chosen.run('Go');
  expect(chosen.requests[0]).toMatchObject({ tool_choice: { type: 'function', function: { name: 'lookup' } } });
  const none = agent([say('ok')], { seed: null });
  await none.run([user('Go')]);
  expect(Object.keys(none.requests[0] ?? {}).toSorted()).toEqual(['messages', 'model', 'stream', 'stream_options']);
});
