import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { RunAgent } from '../../support/runs.ts';
import { say } from '../../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../../support/test-server.ts';

/** What runs do with images, audio and sources. */

let folder: string;
let server: TestServer;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-media-'));
  const file = path.join(folder, 'providers.json');
  const providers = Object.fromEntries(
    ['anthropic', 'google', 'openai-responses'].map((kind) => [
      kind,
      { kind, base_url: 'http://127.0.0.1:9/v1', models: { m: {} } },
    ]),
  );
  await writeFile(file, JSON.stringify({ providers }));
  server = await startTestServer({ env: { EVERTURN_MODEL_PROVIDERS: file } });
}, 60_000);
afterAll(async () => {
  await server.stop();
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

test('what needs a capability that the request denies its model is rejected', async () => {
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
