import { expect, test } from 'vitest';
import { findModel } from './model-lookup.ts';

const answers = (list: unknown, [status, body]: [number, unknown]) => {
  const send = (content: unknown, code = 200) =>
    Promise.resolve(new Response(typeof content === 'string' ? content : JSON.stringify(content), { status: code }));
  return (url: string | URL) => (String(url).endsWith('/models') ? send(list) : send(body, status));
};

const ask = (list: unknown, answer: [number, unknown], model: string) =>
  findModel(answers(list, answer), { url: 'http://m/v1/models', hasList: true, ownHeaders: {}, headers: {} }, model);

const LIST = { object: 'list', data: [{ id: 'known' }, { id: 'tiny:latest' }] };

test.each<[string, string, [number, unknown], boolean]>([
  [
    'OpenAI',
    'gpt-6',
    [404, { error: { message: "The model 'gpt-6' does not exist", code: 'model_not_found' } }],
    false,
  ],
  ['LiteLLM', 'team/x', [404, { detail: 'The model `team/x` does not exist or you do not have access' }], false],
  ['Ollama', 'tinny', [404, { error: { message: "model 'tinny' not found", type: 'api_error', code: null } }], false],
  [
    'Anthropic',
    'claude-9',
    [404, { type: 'error', error: { type: 'not_found_error', message: 'model: claude-9' } }],
    false,
  ],
  ['Google', 'gem', [404, { error: { code: 404, message: 'models/gem is not found for API version v1beta' } }], false],
  // The response of llama.cpp to any route that it does not have.
  ['llama.cpp', 'x', [404, { error: { code: 404, message: 'File Not Found', type: 'not_found_error' } }], true],
  ['Express', 'gpt-6', [404, '<pre>Cannot GET /v1/models/gpt-6</pre>'], true],
  ['FastAPI', 'gpt-6', [404, { detail: 'Not Found' }], true],
  ['a text that ends with the name', 'gpt-6', [404, { detail: 'There is no model gpt-6.' }], false],
  ['a short name in a text', 'n', [404, 'nothing is known'], true],
  ['another name', 'tiny', [200, { id: 'tiny' }], true],
  ['a server that fails', 'gpt-6', [500, 'gpt-6'], true],
  ['a listed model', 'known', [404, "'known' is gone"], true],
])('%s and the model %s', async (_server, model, answer, has) => {
  expect((await ask(LIST, answer, model))?.exists).toBe(has);
});

test('a server without a list that can be read gives no result', async () => {
  expect(await ask('<html>', [404, "The model 'gpt-6' does not exist"], 'gpt-6')).toBeUndefined();
});

/** As llama.cpp and vLLM answer to the route of one model, which they do not have. */
const NO_ROUTE: [number, unknown] = [404, { error: { code: 404, message: 'File Not Found', type: 'not_found_error' } }];

test.each([
  ['llama.cpp', { id: 'm', owned_by: 'llamacpp', meta: { n_vocab: 9, n_ctx_train: 40_960, n_ctx: 4_096 } }, 4_096],
  ['LiteLLM', { id: 'm', object: 'model', max_input_tokens: 128_000, max_output_tokens: 16_384 }, 128_000],
  ['vLLM', { id: 'm', object: 'model', owned_by: 'vllm', root: 'm', max_model_len: 32_768 }, 32_768],
  ['OpenRouter', { id: 'm', name: 'M', context_length: 131_072, pricing: { prompt: '0' } }, 131_072],
  ['a server with other types', { id: 'm', context_length: '8k', max_model_len: null, meta: [] }, undefined],
])('the window in the list of %s', async (_server, entry, contextTokens) => {
  expect(await ask({ object: 'list', data: [{ id: 'x' }, entry] }, NO_ROUTE, 'm')).toEqual({
    exists: true,
    ...(contextTokens !== undefined && { contextTokens }),
  });
});

test('the window in the answer about a model that the list does not have, such as an alias', async () => {
  expect(await ask(LIST, [200, { id: 'tiny', context_length: 2_048 }], 'tiny')).toEqual({
    exists: true,
    contextTokens: 2_048,
  });
  expect(await ask(LIST, [200, { id: 'other', context_length: 2_048 }], 'tiny')).toEqual({ exists: true });
});

test('a model that a list lacks may exist, and those that it has are returned', async () => {
  expect(await ask(LIST, NO_ROUTE, 'tinny')).toEqual({ exists: true, others: ['known', 'tiny:latest'] });
});

test.each([
  ['a page of a longer list', { ...LIST, has_more: true }],
  ['a list with too many models', { data: Array.from({ length: 2_001 }, (_, i) => ({ id: `m${i}` })) }],
  ['an empty list', { data: [] }],
])('%s names no others', async (_, list) => {
  expect(await ask(list, NO_ROUTE, 'tinny')).toEqual({ exists: true });
});

test('names that cannot be shown are left out', async () => {
  const data = [{ id: 'a\nb' }, { id: 'x'.repeat(201) }, { id: 'good' }];
  expect(await ask({ data }, NO_ROUTE, 'goood')).toEqual({ exists: true, others: ['good'] });
});

test('a route with a wildcard may lead to a model that LiteLLM denies', async () => {
  const denial: [number, unknown] = [404, { detail: 'The model `openai/new` does not exist' }];
  expect(await ask({ data: [{ id: 'openai/*' }] }, denial, 'openai/new')).toEqual({ exists: true });
  expect(await ask({ data: [{ id: 'gemini/*' }] }, denial, 'openai/new')).toMatchObject({ exists: false });
});
