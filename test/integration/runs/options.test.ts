import { afterAll, beforeAll, expect, test } from 'vitest';
import { calls, RunAgent, user } from '../../support/runs.ts';
import { say } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** The acceptance cases of the run API that are about what an agent may say of itself, by their numbers in the contract. */

let server: TestServer;
const noted: unknown[] = [];
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        {
          name: 'note',
          handler: ({ text }) => {
            noted.push(text);
            return `noted ${String(text)}`;
          },
        },
      ],
    },
  });
}, 60_000);
afterAll(() => server.stop());

const LAB = { type: 'mcp', server: 'test' };
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

test('25: a toolkit that cannot be opened ends the run before its first model call, unless it is not required', async () => {
  const closed = { type: 'mcp', name: 'closed', url: 'http://127.0.0.1:9/mcp' };
  const tools = { type: 'client', name: 'kit', tools: [lookup] };
  const one = agent([], { toolkits: [LAB, tools, closed] });
  const failed = await one.run('Go');
  expect(failed).toMatchObject({ status: 'failed', output: [], content: [], turns: 0, unreported_attempts: 0 });
  expect(failed.error).toMatchObject({ type: 'init_error', name: 'AgentInitError' });
  expect(failed.error?.message).toMatch(/"closed" are unavailable: it /);
  // The calls that the input ends with do not run either.
  const input = [user('Go'), calls({ id: 'c1', name: 'note', args: { text: 'x' } })];
  expect(await one.run(input)).toMatchObject({ status: 'failed', output: [], error: { type: 'init_error' } });
  const { done } = one.stream('Go');
  expect(await done).toMatchObject([{ event: 'error', error: { type: 'init_error' }, output: [] }]);
  expect([one.requests, noted]).toEqual([[], []]);
  const other = agent([say('ok')], { toolkits: [LAB, { ...closed, required: false }] });
  expect(await other.run('Go')).toMatchObject({ status: 'completed' });
  expect(other.requests[0]?.tools?.map(({ function: { name } }) => name)).toEqual(['test__note']);
});
