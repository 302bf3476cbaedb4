import { Agent, type AgentItem } from '@hoangvvo/llm-agent';
import { StreamAccumulator, type Message, type PartialModelResponse } from '@hoangvvo/llm-sdk';
import { MockLanguageModel } from '@hoangvvo/llm-sdk/test';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { TestTool } from '../../support/mcp-server.ts';
import { calls, inShort, RunAgent, user } from '../../support/runs.ts';
import { say, use, type Script } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** The acceptance cases of the run API that are about the options of an agent, by their numbers in the contract. */

let server: TestServer;
const noted: unknown[] = [];
const NOTE: TestTool = {
  name: 'note',
  handler: ({ text }) => {
    noted.push(text);
    return `noted ${String(text)}`;
  },
};
beforeAll(async () => {
  server = await startTestServer({ mcp: { tools: [NOTE] } });
});
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
  const thinker = agent([say('ok')], { reasoning: { enabled: true, budget_tokens: 9_000 } });
  await thinker.run('Go');
  expect(thinker.requests[0]).toMatchObject({ reasoning_effort: 'medium' });
  expect(thinker.requests[0]).not.toHaveProperty('reasoning_tokens');
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

test('23: the tools of the agent, of the request and of its toolkits are offered in this order on every call', async () => {
  const one = agent([use({ name: 'test__note', id: 'c1', args: { text: 'x' } }), say('Noted.')]);
  const own = { type: 'truefoundry-mcp-registry', name: 'test', require_approval_for_tools: [] };
  const client_tools = [{ name: 'own', description: 'owns', input_schema: { type: 'object' } }];
  await server.api.putAgent(one.name, { model: { name: one.name }, mcp_servers: [own], client_tools });
  const kit = { type: 'client', name: 'kit', tools: [{ ...lookup, name: 'last' }] };
  const params = { tools: [lookup], toolkits: [{ type: 'mcp', name: 'lab', url: server.mcp.url }, kit] };
  const path = `/v1/agents/${one.name}/runs`;
  expect((await server.api.send('POST', path, { input: [user('Go')], params })).body.status).toBe('completed');
  const names = one.requests.map((request) => request.tools?.map(({ function: { name } }) => name));
  const order = ['own', 'test__note', 'lookup', 'lab__note', 'last'];
  expect(names).toEqual([order, order]);
});

test('24: the tools of a server that change between two model calls are those of the second one', async () => {
  const changing: Script = async (call) => {
    await server.mcp.setTools([NOTE, { name: 'more', handler: () => 'more' }]);
    call.toolCall('note', { text: 'x' }, 'c1').finish();
  };
  const one = agent([changing, say('Noted.')], { toolkits: [LAB] });
  expect((await one.run('Go')).status).toBe('completed');
  const offered = one.requests.map((request) => request.tools?.map(({ function: { name } }) => name));
  expect(offered).toEqual([['note'], ['note', 'more']]);
  await server.mcp.setTools([NOTE]);
});

test('35: the parts of a message are in the order in which they began; folding the partials gives its item', async () => {
  const message: Script = (call) => {
    call.delta({ reasoning_content: 'two ' }).delta({ reasoning_content: 'notes' }).text('On ').text('it.');
    call.toolCall('note', { text: 'a' }, 'c1').toolCall('note', { text: 'b' }, 'c2').finish();
  };
  const events = await agent([message, say('Done.')], { toolkits: [LAB] }).stream('Go').done;
  const accumulator = new StreamAccumulator();
  const first = events.findIndex(({ event }) => event === 'item');
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- llm-sdk reads the fields that it knows
  for (const partial of events.slice(0, first)) accumulator.addPartial(partial as PartialModelResponse);
  const [item] = events.flatMap((event) => (event.event === 'item' ? [event.item] : []));
  if (item?.type !== 'model') throw new Error('the message is not an item');
  expect(item.content.map(({ type }) => type)).toEqual(['reasoning', 'text', 'tool-call', 'tool-call']);
  const { content, usage } = accumulator.computeResponse();
  expect(item).toMatchObject({
    content,
    usage: { input_tokens: usage?.input_tokens, output_tokens: usage?.output_tokens },
  });
  expect(events.at(-1)).toMatchObject({ event: 'response', status: 'completed' });
});

test("51: llm-sdk's agent makes the same request from the output of a run", async () => {
  const one = agent([use({ name: 'note', id: 'c1', args: { text: 'milk' } }), say('Noted.'), say('Yes.')], {
    toolkits: [LAB],
  });
  const { status, output } = await one.run('Note milk');
  expect(status).toBe('completed');
  const input = [user('Note milk'), ...output, user('Is it?')];
  await one.run(input);
  const model = new MockLanguageModel();
  model.enqueueGenerateResult({ response: { content: [{ type: 'text', text: 'Yes.' }] } });
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the items of the run have more fields
  await new Agent({ name: 'other', model }).run({ input: input as AgentItem[], context: {} });
  const [theirs] = model.trackedGenerateInputs;
  expect(theirs?.messages.flatMap(inChat)).toEqual(one.requests.at(-1)?.messages);
});

/** A message of llm-sdk in the protocol of chat completions. */
function inChat({ role, content }: Message): object[] {
  const text = (parts: Message['content']) => parts.map((part) => (part.type === 'text' ? part.text : '')).join('');
  if (role === 'tool') {
    return content.flatMap((part) =>
      part.type === 'tool-result' ? [{ role, tool_call_id: part.tool_call_id, content: text(part.content) }] : [],
    );
  }
  const made = content.flatMap((part) =>
    part.type === 'tool-call'
      ? [
          {
            id: part.tool_call_id,
            type: 'function',
            function: { name: part.tool_name, arguments: JSON.stringify(part.args) },
          },
        ]
      : [],
  );
  return [
    {
      role,
      content: role === 'user' ? text(content) : text(content) || null,
      ...(made.length > 0 && { tool_calls: made }),
    },
  ];
}

test('52: a run costs what its request says, with cached tokens at their price; without prices it is null', async () => {
  const usage = {
    prompt_tokens: 100,
    completion_tokens: 20,
    total_tokens: 120,
    prompt_tokens_details: { cached_tokens: 40, audio_tokens: 10 },
    completion_tokens_details: { audio_tokens: 5 },
  };
  const scripts: Script[] = [
    (call) => call.toolCall('note', { text: 'a' }, 'c1').finish('tool_calls', usage),
    (call) => call.text('Done.').finish('stop', usage),
  ];
  const pricing = {
    input_cost_per_text_token: 0.000_002,
    input_cost_per_cached_text_token: 0.000_001,
    input_cost_per_audio_token: 0.000_1,
    output_cost_per_text_token: 0.000_01,
    output_cost_per_audio_token: 0.001,
  };
  const one = agent(scripts, { toolkits: [LAB] });
  const stream = one.stream('Go', {
    agent: { model: { name: one.name, metadata: { pricing } }, toolkits: [LAB] },
  });
  // 50 and 40 cached tokens of text, 10 of audio; 15 of text, 5 of audio.
  const cost = 0.006_29;
  const details = {
    input_tokens_details: { text_tokens: 90, cached_text_tokens: 40, audio_tokens: 10 },
    output_tokens_details: { text_tokens: 15, audio_tokens: 5 },
  };
  const end = await stream.end();
  const model = { type: 'model', usage: { input_tokens: 100, output_tokens: 20, ...details }, cost };
  expect(end).toMatchObject({
    status: 'completed',
    output: [model, {}, model],
    usage: {
      input_tokens: 200,
      output_tokens: 40,
      input_tokens_details: { text_tokens: 180, cached_text_tokens: 80, audio_tokens: 20 },
      output_tokens_details: { text_tokens: 30, audio_tokens: 10 },
    },
    cost: 0.012_58,
  });
  expect(stream.events.flatMap((event) => ('cost' in event && event.event === 'partial' ? event.cost : []))).toEqual([
    cost,
    cost,
  ]);
  if (end.event !== 'response') throw new Error('the run has failed');
  const { event: _, sequence_number: __, ...run } = end;
  expect(await server.api.get(`/v1/runs/${run.id}`)).toEqual(run);
  const unpriced = await agent([say('ok')]).run('Go');
  expect(unpriced.cost).toBeNull();
  expect(unpriced.output[0]).not.toHaveProperty('cost');
});

test('53: an answer that does not fit the schema is repaired at most twice', async () => {
  const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
  const params = { response_format: { type: 'json', name: 'count', schema } };
  const one = agent([say('{"n": "one"}'), say('{"n": 1}')], params);
  const run = await one.run('Count');
  expect(run).toMatchObject({ status: 'completed', turns: 2, output_json: { n: 1 } });
  expect(run.content).toEqual([{ type: 'text', text: '{"n": 1}' }]);
  const never = agent([say('one'), say('two'), say('three')], params);
  const failed = await never.run('Count');
  expect(failed).toMatchObject({ status: 'failed', turns: 3, error: { type: 'invariant_error' } });
  expect(failed).not.toHaveProperty('output_json');
  expect(never.requests).toHaveLength(3);
});

test.each([{ type: 'json', name: 'any' }, { type: 'json_object' }])(
  '53: without a schema an answer is any JSON: %j',
  async (format) => {
    const params = { response_format: format };
    const one = agent([say('It is one.'), say('[1]')], params);
    const run = await one.run('Count');
    expect(run).toMatchObject({ status: 'completed', turns: 2, output_json: [1] });
    expect(inShort(run.output)).toEqual(['model', 'model']);
    const [first, second] = one.requests;
    expect(first).toMatchObject({ response_format: { type: 'json_object' } });
    expect(second?.messages.at(-1)?.content).toMatch(/^This answer is not accepted, because it has to be JSON:\n/);
    const never = await agent([say('one'), say('two'), say('three')], params).run('Count');
    expect(never).toMatchObject({ status: 'failed', turns: 3, error: { type: 'invariant_error' } });
    expect(never.error?.message).toMatch(/^The answer is not the JSON that the agent requires: it is not valid JSON/);
    const atLimit = await agent([say('one')], { ...params, max_turns: 1 }).run('Count');
    expect(atLimit).toMatchObject({ status: 'failed', turns: 1, error: { type: 'max_turns_exceeded' } });
  },
);

test('58: fields that the input has in addition are ignored', async () => {
  const one = agent([say('ok')]);
  const text = { type: 'text', text: 'Hi', annotations: [], note: { a: 1 } };
  const run = await one.run([{ type: 'message', role: 'user', content: [text], from: 'a store', at: 7 }]);
  expect(run).toMatchObject({ status: 'completed', output: [{ type: 'model' }] });
  expect(one.requests[0]?.messages).toEqual([{ role: 'user', content: 'Hi' }]);
});

test('an answer that is cut off at its limit of tokens is one, and a call that is cut off has invalid arguments', async () => {
  const answer = await agent([(call) => call.text('The sea').finish('length')]).run('Go');
  const content = [{ type: 'text', text: 'The sea' }];
  expect(answer).toMatchObject({ status: 'completed', content, output: [{ finish_reason: 'length' }] });
  for (const args of ['', '{"at"']) {
    const cut: Script = (call) => call.toolCall('lookup', args, 'c1').finish('length');
    const run = await agent([cut, say('Done.')], { tools: [lookup] }).run('Go');
    expect([run.status, ...inShort(run.output)]).toEqual(['completed', 'model c1', 'c1 failed', 'model']);
  }
});
