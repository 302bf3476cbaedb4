import { afterAll, beforeAll, expect, test } from 'vitest';
import { folded } from '../support/api-client.ts';
import { say, textOf, use } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

/** Answers of agents with a JSON Schema, which are checked, and repaired by the model. */

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: { tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' }] },
  });
});
afterAll(() => server.stop());

const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const format = { type: 'json_schema' as const, json_schema: { name: 'place', schema } };
const spec = { ...onTestServer, response_format: format };

/** The last message of each request to a chat's model. */
const lastOf = (chat: Chat) => chat.requests().map(({ messages }) => textOf(messages.at(-1)));

test('an answer that does not fit goes back to the model with the errors, and the turn has the value that fits', async () => {
  const chat = await server.chat({
    scripts: [use({ name: 'look', id: 'l1' }), say('It is Kyoto.'), say('{"town":"Kyoto"}'), say('{"city":"Kyoto"}')],
    spec,
  });
  const reader = chat.turn('where?');
  const end = await reader.end();
  expect(end).toMatchObject({
    status: 'done',
    output: { content: '{"city":"Kyoto"}' },
    output_json: { city: 'Kyoto' },
    metrics: { model_calls: 4, tool_calls: 1 },
  });
  expect(chat.requests()[0]).toMatchObject({ response_format: format });
  expect(lastOf(chat).slice(1)).toEqual([
    'seen',
    expect.stringMatching(/not accepted[^]*not valid JSON/),
    expect.stringMatching(/not accepted[^]*must have required property 'city'/),
  ]);
  const frames = folded(await reader.done);
  expect(frames.slice(4, -1)).toMatchObject([
    { type: 'model.message', content: 'It is Kyoto.', misfit: expect.stringMatching(/JSON/) },
    { type: 'model.message', content: '{"town":"Kyoto"}', misfit: "must have required property 'city'" },
    { type: 'model.message', content: '{"city":"Kyoto"}' },
  ]);
  expect(frames.at(-2)).not.toHaveProperty('misfit');
  const turn = `${chat.path}/turns/${await reader.turnId()}`;
  expect((await server.api.get(turn)).data.state).toEqual(end);
  expect(await server.api.list(`${turn}/events`)).toEqual(frames.slice(1, -1));

  // The next turn reads the same conversation.
  chat.script(say('{"city":"Nara"}'));
  const next = chat.turn('and then?');
  expect(await next.end()).toMatchObject({ output_json: { city: 'Nara' } });
  const [before, after] = chat.requests().slice(-2);
  expect(after?.messages.slice(0, before?.messages.length)).toEqual(before?.messages);
});

test('after too many answers that do not fit the turn ends in an error that says why', async () => {
  const chat = await server.chat({
    scripts: [say('no'), say('{"city":7}'), say('{"city":"Nara"}')],
    spec: { ...spec, config: { structured_output: { max_repairs: 1 } } },
  });
  const reader = chat.turn('where?');
  expect(await reader.end()).toMatchObject({
    status: 'error',
    message: "The answer does not fit the agent's JSON Schema: /city must be string",
    metrics: { model_calls: 2 },
  });
  expect(folded(await reader.done).at(-2)).toMatchObject({ content: '{"city":7}', misfit: '/city must be string' });
  // The next turn has repairs of its own.
  expect(await chat.turn('again').end()).toMatchObject({ status: 'done', output_json: { city: 'Nara' } });
});

test('repairs count as steps of the turn', async () => {
  const chat = await server.chat({ scripts: [say('no')], spec: { ...spec, config: { iteration_limit: 1 } } });
  expect(await chat.turn('where?').end()).toMatchObject({
    status: 'error',
    message: expect.stringMatching(/limit of 1/),
  });
});

test('a refusal ends the turn without a value', async () => {
  const chat = await server.chat({ scripts: [(call) => call.delta({ refusal: 'I will not.' }).finish()], spec });
  const end = await chat.turn('where?').end();
  expect(end).toMatchObject({ status: 'done', output: { refusal: 'I will not.' } });
  expect(end).not.toHaveProperty('output_json');
});

test('sub-agents repair their answers, too, and fail if they cannot', async () => {
  const [good, bad] = [await server.chat({ spec }), await server.chat({ spec })];
  const start = ({ agent }: Chat) => ({
    name: 'create_sub_agent',
    id: `call_${agent.slice(-6)}`,
    args: { name: agent.slice(-6), input: 'where?', agent },
  });
  good.script(say('It is Kyoto.'), say('{"city":"Kyoto"}'));
  bad.script(say('1'), say('2'), say('3'));
  const chat = await server.chat({
    scripts: [use(start(good), start(bad)), say('done')],
    spec: { agents: [good.agent, bad.agent] },
  });
  const reader = chat.turn('ask them');
  expect(await reader.end()).toMatchObject({
    status: 'done',
    output: { content: 'done' },
    metrics: { model_calls: 7 },
  });
  const ends = folded(await reader.done).filter((event) => 'type' in event && event.type === 'thread.done');
  expect(ends).toHaveLength(2);
  expect(ends).toContainEqual(
    expect.objectContaining({
      status: 'done',
      state: {
        status: 'done',
        output: expect.objectContaining({ content: '{"city":"Kyoto"}' }),
        output_json: { city: 'Kyoto' },
      },
    }),
  );
  expect(ends).toContainEqual(
    expect.objectContaining({ status: 'error', message: expect.stringMatching(/does not fit[^]*must be object/) }),
  );
  const [first, second] = (chat.requests()[1]?.messages ?? []).slice(-2).map(textOf);
  expect(first).toBe('{"city":"Kyoto"}');
  expect(second).toMatch(/must be object/);
});

test.each([
  ['refers to another document', { $ref: 'https://example.com/place.json' }],
  ['is not valid', { type: 'place' }],
])('an agent whose schema %s is rejected', async (_, wrong) => {
  const body = {
    model: { name: 'm' },
    response_format: { type: 'json_schema', json_schema: { name: 'x', schema: wrong } },
  };
  expect(await server.api.send('PUT', '/v1/agents/wrong', body)).toMatchObject({
    status: 422,
    body: { error: { code: 'invalid_agent', param: 'response_format.json_schema.schema' } },
  });
});
