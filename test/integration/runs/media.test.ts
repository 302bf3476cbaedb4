import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { StreamAccumulator, type PartialModelResponse } from '@hoangvvo/llm-sdk';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sending, startEndpoint, type Endpoint } from '../../support/model-protocols.ts';
import { resumeRefusal, RunAgent, RunStream } from '../../support/runs.ts';
import { say, use, type Script } from '../../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../../support/test-server.ts';

/** Runs with images, audio and sources. */

let folder: string;
let server: TestServer;
let gemini: Endpoint;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-media-'));
  const file = path.join(folder, 'providers.json');
  gemini = await startEndpoint();
  const providers = Object.fromEntries(
    ['anthropic', 'google', 'openai-responses'].map((kind) => [
      kind,
      { kind, base_url: kind === 'google' ? gemini.url : 'http://127.0.0.1:9/v1', models: { m: {} } },
    ]),
  );
  await writeFile(file, JSON.stringify({ providers }));
  server = await startTestServer({ env: { EVERTURN_MODEL_PROVIDERS: file } });
});
afterAll(async () => {
  await server.stop();
  await gemini.stop();
  await rm(folder, { recursive: true });
});

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const SOUND = Buffer.from('RIFF....WAVE').toString('base64');
const text = { type: 'text', text: 'What is it?' };
const image = { type: 'image', mime_type: 'image/png', data: PIXEL };
const wav = { type: 'audio', format: 'wav', data: SOUND };
const source = {
  type: 'source',
  source: 'https://a.test/seas',
  title: 'Seas',
  content: [{ type: 'text', text: 'salt' }, image],
};
const user = (...content: object[]): object => ({ type: 'message', role: 'user', content });
const agent = (scripts: ConstructorParameters<typeof RunAgent>[1] = [], params: object = {}): RunAgent =>
  new RunAgent(server, scripts, params);

/** The first item of a stream as llm-sdk folds it. */
function folded({ events }: RunStream): ReturnType<StreamAccumulator['computeResponse']> {
  const accumulator = new StreamAccumulator();
  const first = events.findIndex(({ event }) => event === 'item');
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- llm-sdk reads the fields that it knows
  for (const partial of events.slice(0, first)) accumulator.addPartial(partial as PartialModelResponse);
  return accumulator.computeResponse();
}

test('54: images, audio and sources of a user are in the request to the model', async () => {
  const one = agent([say('A sea.')]);
  expect(await one.run([user(text, image, wav, { ...wav, format: 'mp3' }, source)])).toMatchObject({
    status: 'completed',
  });
  const picture = { type: 'image_url', image_url: { url: `data:image/png;base64,${PIXEL}` } };
  const sound = (format: string) => ({ type: 'input_audio', input_audio: { data: SOUND, format } });
  expect(one.requests[0]?.messages).toEqual([
    {
      role: 'user',
      content: [
        text,
        picture,
        sound('wav'),
        sound('mp3'),
        { type: 'text', text: 'Source: Seas (https://a.test/seas)' },
        { type: 'text', text: 'salt' },
        picture,
      ],
    },
  ]);
});

test('what a model says is a part of its item, and later model calls are given the transcript', async () => {
  const samples = (...values: number[]) => Buffer.from(new Int16Array(values).buffer).toString('base64');
  const speak: Script = (call) => {
    call.delta({ audio: { id: 'audio_1', transcript: 'A ' } }).delta({ audio: { data: samples(1, 2) } });
    call
      .delta({ audio: { data: samples(3), transcript: 'sea.' } })
      .delta({ audio: { expires_at: 7 } })
      .finish();
  };
  const one = agent([speak, say('Salt.')], { modalities: ['text', 'audio'], audio: { voice: 'ash' } });
  const stream = one.stream([user(text)]);
  const end = await stream.end();
  const spoken = {
    type: 'audio',
    format: 'linear16',
    data: samples(1, 2, 3),
    sample_rate: 24_000,
    channels: 1,
    transcript: 'A sea.',
    id: 'audio_1',
  };
  expect(end).toMatchObject({ event: 'response', status: 'completed', content: [spoken], turns: 1 });
  expect(one.requests[0]).toMatchObject({ modalities: ['text', 'audio'], audio: { voice: 'ash', format: 'pcm16' } });
  const [item] = stream.items;
  expect(item).toMatchObject({ type: 'model', content: [spoken] });
  const first = stream.events.findIndex(({ event }) => event === 'item');
  expect(folded(stream)).toMatchObject({ content: [spoken], usage: { output_tokens: 5 } });
  if (end.event !== 'response') throw new Error('the run has not ended well');
  for (const [i, { sequence_number: after }] of stream.events.slice(0, -1).entries()) {
    const rest = RunStream.open(server.api, `/v1/runs/${end.id}/stream?after_sequence_number=${after}`);
    expect(await rest.done).toEqual(stream.events.slice(Math.max(first, i + 1)));
  }
  expect(await one.run([user(text), ...end.output, user(text)])).toMatchObject({ status: 'completed' });
  expect(one.requests[1]?.messages[1]).toEqual({ role: 'assistant', content: 'A sea.' });
});

test('what a model says beside a text and a call is the last part', async () => {
  const data = Buffer.from([1, 0]).toString('base64');
  const mixed: Script = (call) => {
    call
      .text('Looking ')
      .delta({ audio: { data, transcript: 'Let me see.' } })
      .text('it up.');
    call.toolCall('lookup', { q: 'sea' }, 'c1').finish();
  };
  const lookup = { name: 'lookup', description: 'looks up', parameters: { type: 'object' } };
  const one = agent([mixed, say('Salt.')], { modalities: ['text', 'audio'], tools: [lookup] });
  const stream = one.stream([user(text)]);
  const end = await stream.end();
  if (end.event !== 'response') throw new Error('the run does not wait for its client');
  const content = [
    { type: 'text', text: 'Looking it up.' },
    { type: 'tool-call', tool_call_id: 'c1' },
    { type: 'audio', format: 'linear16', data, transcript: 'Let me see.' },
  ];
  expect([end.content, folded(stream).content]).toMatchObject([content, content]);
  const results = [{ tool_call_id: 'c1', content: 'salt' }];
  const path = `/v1/runs/${end.id}/resume`;
  expect(await server.api.send('POST', path, { tool_results: results })).toMatchObject({
    body: { status: 'completed' },
  });
  expect(one.requests[1]?.messages[1]).toMatchObject({
    content: 'Looking it up.\nLet me see.',
    tool_calls: [{ id: 'c1' }],
  });
});

test('what a model draws is a part of its item, and goes back to it with its signature', async () => {
  const answer = (parts: object[], finishReason?: string): string => {
    const candidates = [{ index: 0, content: { role: 'model', parts }, ...(finishReason && { finishReason }) }];
    return `data: ${JSON.stringify({ candidates, usageMetadata: { promptTokenCount: 4, candidatesTokenCount: 9 } })}\n\n`;
  };
  const inlineData = { mimeType: 'image/png', data: PIXEL };
  gemini.script(
    sending(answer([{ inlineData, thoughtSignature: 'SIGNATURE' }]), answer([], 'STOP')),
    sending(answer([{ text: 'Blue.' }]), answer([], 'STOP')),
  );
  const one = agent([], { model: 'google/m', modalities: ['text', 'image'] });
  const stream = one.stream([user(text)]);
  const end = await stream.end();
  const drawn = { type: 'image', mime_type: 'image/png', data: PIXEL };
  expect(end).toMatchObject({ event: 'response', status: 'completed', content: [drawn] });
  expect(folded(stream).content).toMatchObject([drawn]);
  if (end.event !== 'response') throw new Error('the run has not ended well');
  const input = [user(text), ...end.output, user(text)];
  expect(await one.run(input)).toMatchObject({ status: 'completed', content: [{ type: 'text', text: 'Blue.' }] });
  const [first, second] = gemini.requests.map(({ body }) => body);
  expect(first).toMatchObject({ generationConfig: { responseModalities: ['TEXT', 'IMAGE'] } });
  expect(second.contents[1]).toEqual({ role: 'model', parts: [{ inlineData, thoughtSignature: 'SIGNATURE' }] });
  const refused = [422, 'unsupported_part', 'input[1].content[0]'];
  expect(await agent().refusal(input)).toEqual(refused);
  const chat = agent([], { modalities: ['text', 'image'] });
  expect(await chat.refusal('Go')).toEqual([422, 'feature_not_available', 'agent.modalities']);
});

test('a model that cannot speak is not asked to', async () => {
  for (const model of ['anthropic/m', 'google/m', 'openai-responses/m']) {
    const mute = agent([], { model, modalities: ['text', 'audio'] });
    expect(await mute.refusal('Go')).toEqual([422, 'feature_not_available', 'agent.modalities']);
  }
  const voice = agent([], { model: 'anthropic/m', audio: { voice: 'ash' } });
  expect(await voice.refusal('Go')).toEqual([422, 'feature_not_available', 'agent.audio']);
});

test('input that needs a capability that the request denies its model is rejected', async () => {
  const one = agent([], {});
  const model = {
    name: one.name,
    metadata: { capabilities: { image_input: false, reasoning: false, citation: true } },
  };
  const narrow = (more: object = {}): RunAgent => agent([], { model, ...more });
  expect(await narrow().refusal([user(text, image)])).toEqual([422, 'unsupported_part', 'input[0].content[1]']);
  const thinking = narrow({ reasoning: { enabled: true } });
  expect(await thinking.refusal([user(text)])).toEqual([422, 'feature_not_available', 'agent.reasoning']);
  expect(await narrow().run([user(text, wav)])).toMatchObject({ status: 'completed' });
  one.script(use({ name: 'look', id: 'c1' }));
  const paused = await narrow({ tools: [{ name: 'look', description: 'looks', parameters: {} }] }).run([user(text)]);
  const results = { tool_results: [{ tool_call_id: 'c1', content: [text, image] }] };
  const refused = [422, 'unsupported_part', 'tool_results[0].content[1]'];
  expect(await resumeRefusal(server, paused, results)).toEqual(refused);
});

test('54: audio that one of the models does not take is rejected', async () => {
  const flac = { ...wav, format: 'flac' };
  const refused = [422, 'unsupported_part', 'input[0].content[1]'];
  expect(await agent().refusal([user(text, flac)])).toEqual(refused);
  expect(await agent().refusal([user({ ...source, content: [text, flac] })])).toEqual([
    422,
    'unsupported_part',
    'input[0].content[0].content[1]',
  ]);
  for (const model of ['anthropic/m', 'openai-responses/m']) {
    expect(await agent([], { model }).refusal([user(text, wav)])).toEqual(refused);
  }
  const { name } = agent();
  await server.api.putAgent('speaker', { ...onTestServer, model: { name, fallbacks: ['google/m', 'anthropic/m'] } });
  const { status, body } = await server.api.send('POST', '/v1/agents/speaker/runs', { input: [user(text, wav)] });
  expect([status, body.error?.code, body.error?.param]).toEqual(refused);
});
