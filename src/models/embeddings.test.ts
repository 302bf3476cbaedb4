import type { ServerResponse } from 'node:http';
import { LLMock } from '@copilotkit/aimock';
import { expect, onTestFinished, test } from 'vitest';
import { sendEmbeddings, sendError, startEmbeddingServer } from '../../test/support/embedding-server.ts';
import { Embeddings } from './embeddings.ts';
import { createEmbed } from './openai/embeddings.ts';
import { ModelError } from './model-error.ts';
import { eventually } from '../../test/support/eventually.ts';

const { signal } = new AbortController();

/** Each text is a number, which is the direction of its vector in degrees. */
const vectorOf = (text: string) => [3 * cosine(Number(text)), 3 * Math.sin(radians(Number(text)))];
const radians = (degrees: number) => (degrees * Math.PI) / 180;
const cosine = (degrees: number) => Math.cos(radians(degrees));

const numbers = (count: number) => Array.from({ length: count }, (_, i) => String(i));

async function start(options: { maxBytes?: number } = {}) {
  const server = await startEmbeddingServer(vectorOf);
  onTestFinished(() => server.stop());
  const access = { apiKey: 'key', baseUrl: server.url, headers: {}, idleSeconds: 10 };
  const embeddings = new Embeddings({ name: 'm', address: undefined, embed: createEmbed('m', access) }, options);
  const asked = () => server.requests.flatMap(({ input }) => input);
  return { server, embeddings, asked };
}

test('each text has its vector, of the length 1, and no request has more than 32 texts', async () => {
  const { server, embeddings } = await start();
  const vectors = await embeddings.of(numbers(70), signal);
  expect(vectors).toHaveLength(70);
  for (const [degrees, [x]] of vectors.entries()) expect(x).toBeCloseTo(cosine(degrees), 6);
  expect(server.requests.map(({ model, input }) => [model, input.length])).toEqual([
    ['m', 32],
    ['m', 32],
    ['m', 6],
  ]);
});

test('a text is asked for once, whatever it is among', async () => {
  const { embeddings, asked } = await start();
  await embeddings.of(['1', '2', '2'], signal);
  expect(asked()).toEqual(['1', '2']);
  const [first, second] = await embeddings.of(['3', '1'], signal);
  expect([first?.[0], second?.[0]]).toEqual([expect.closeTo(cosine(3), 6), expect.closeTo(cosine(1), 6)]);
  expect(asked()).toEqual(['1', '2', '3']);
});

test('the cache has a bound in bytes, and keeps what was used last', async () => {
  // Two vectors of two numbers, with what an entry needs.
  const { embeddings, asked } = await start({ maxBytes: 2 * (256 + 8) });
  await embeddings.of(['1'], signal);
  await embeddings.of(['2'], signal);
  await embeddings.of(['1'], signal);
  // A search of more than fits has all of its vectors.
  expect(await embeddings.of(['3'], signal)).toHaveLength(1);
  await embeddings.of(['1'], signal);
  expect(asked()).toEqual(['1', '2', '3']);
  await embeddings.of(['2'], signal);
  expect(asked()).toEqual(['1', '2', '3', '2']);
  expect(await embeddings.of(numbers(10), signal)).toHaveLength(10);
});

test('results from before a failure are kept, and the rest is no longer asked for', async () => {
  const { server, embeddings, asked } = await start();
  const { answer } = server;
  server.answer = (request, response) => {
    if (request.input.includes('40')) sendError(response, 500, 'it broke');
    else answer(request, response);
  };
  await expect(embeddings.of(numbers(400), signal)).rejects.toThrow('it broke');
  expect(asked()).toEqual(numbers(64));
  server.answer = answer;
  expect(await embeddings.of(numbers(400), signal)).toHaveLength(400);
  expect(asked().slice(64)).toEqual(numbers(400).slice(32));
});

test('a search has one request at a time, so that one for many tools keeps no other waiting; four run at once', async () => {
  const { server, embeddings } = await start();
  const { answer } = server;
  const held: (() => void)[] = [];
  server.answer = (request, response) => void held.push(() => answer(request, response));
  const searches = [embeddings.of(numbers(100), signal)];
  searches.push(...['200', '201', '202', '203'].map((text) => embeddings.of([text], signal)));
  await eventually(() => expect(held).toHaveLength(4));
  const first = server.requests.map(({ input }) => input.length);
  expect(first).toEqual([32, 1, 1, 1]);
  for (const release of held.splice(0)) release();
  await eventually(() => expect(held).toHaveLength(2));
  server.answer = answer;
  for (const release of held) release();
  expect(await Promise.all(searches)).toHaveLength(5);
});

test('another model under the same name makes one search fail, and no vectors of both are compared', async () => {
  const { server, embeddings } = await start();
  await embeddings.of(['1'], signal);
  server.answer = ({ input }, response) =>
    sendEmbeddings(
      response,
      input.map(() => [1, 2, 3]),
    );
  await expect(embeddings.of(['1', '2'], signal)).rejects.toThrow('another length than they had before');
  expect(await embeddings.of(['1', '2'], signal)).toMatchObject([{ length: 3 }, { length: 3 }]);
});

test('a server of others gives vectors', async () => {
  const mock = new LLMock({ port: 0 });
  await mock.start();
  onTestFinished(() => mock.stop());
  const embed = createEmbed('m', { apiKey: 'key', baseUrl: `${mock.url}/v1`, headers: {}, idleSeconds: 10 });
  const [one, two, again] = await embed(['rain', 'mail', 'rain'], signal);
  expect(one).toHaveLength(1_536);
  expect(one).toEqual(again);
  expect(one).not.toEqual(two);
});

const body = (text: string) => (response: ServerResponse) =>
  void response.writeHead(200, { 'content-type': 'application/json' }).end(text);
const vectors =
  (...all: unknown[]) =>
  (response: ServerResponse) =>
    sendEmbeddings(response, all);

test.each([
  ['fewer than texts', vectors([1, 2]), 'a list of 2 embeddings'],
  ['more than texts', vectors([1, 2], [1, 2], [1, 2]), 'a list of 2 embeddings'],
  ['a million more', body(`{"data":[${'{},'.repeat(1_000_000)}{}]}`), 'more than'],
  ['one for a text twice', body('{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}'), 'has 0 numbers'],
  ['no index', body('{"data":[{"embedding":[1]},{"embedding":[1]}]}'), 'each with an index'],
  ['none', vectors([], []), 'has 0 numbers'],
  ['other lengths', vectors([1, 2], [1]), 'their lengths differ'],
  ['texts', vectors([1, '2'], [1, 2]), 'finite numbers'],
  ['base64', vectors('AACAPw==', 'AACAPw=='), 'each with an index'],
  ['null', vectors([1, null], [1, 2]), 'finite numbers'],
  ['infinite numbers', body('{"data":[{"index":0,"embedding":[1e999]},{"index":1,"embedding":[1]}]}'), 'finite'],
  ['numbers whose squares are infinite', vectors([1e200], [1]), 'finite numbers'],
  ['no direction', vectors([0, 0], [1, 2]), 'only zeros'],
  [
    'too many numbers',
    vectors(
      [1, 2],
      Array.from({ length: 4_097 }, () => 1),
    ),
    '4097 numbers',
  ],
  ['too many bytes', body(`{"data":"${'x'.repeat(5_000_000)}"}`), 'larger than 4 MiB'],
  ['another page', body('<html>'), ''],
  ['nothing', body(''), ''],
])('an answer with %s is an error, and nothing of it is kept', async (_, answer, message) => {
  const { server, embeddings } = await start();
  const right = server.answer;
  server.answer = (_request, response) => answer(response);
  const failed = embeddings.of(['1', '2'], signal);
  await expect(failed).rejects.toThrow(ModelError);
  await expect(failed).rejects.toThrow(message);
  server.answer = right;
  expect((await embeddings.of(['1', '2'], signal))[1]?.[0]).toBeCloseTo(cosine(2), 6);
});

test('an error has the status and the text of the server', async () => {
  const { server, embeddings } = await start();
  server.answer = (_request, response) => sendError(response, 401, 'Incorrect API key provided');
  await expect(embeddings.of(['1'], signal)).rejects.toMatchObject({
    failure: 'auth',
    status: 401,
    message: 'Incorrect API key provided',
  });
});

test('a request ends when its caller gives up, also in the middle of an answer', async () => {
  const { server, embeddings } = await start();
  const closed = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  server.answer = (_request, response) => {
    response.once('close', () => closed.resolve());
    response.write('{"data":[', () => begun.resolve());
  };
  const caller = new AbortController();
  const failed = embeddings.of(['1'], caller.signal);
  await begun.promise;
  caller.abort();
  await expect(failed).rejects.toThrow(/abort/i);
  await closed.promise;
});
