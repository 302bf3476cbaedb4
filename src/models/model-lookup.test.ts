import { expect, test } from 'vitest';
import { hasModel } from './model-lookup.ts';

const answers = (list: unknown, [status, body]: [number, unknown]) => {
  const send = (content: unknown, code = 200) =>
    Promise.resolve(new Response(typeof content === 'string' ? content : JSON.stringify(content), { status: code }));
  return (url: string | URL) => (String(url).endsWith('/models') ? send(list) : send(body, status));
};

const ask = (list: unknown, answer: [number, unknown], model: string) =>
  hasModel(answers(list, answer), { url: 'http://m/v1/models/x', list: 'http://m/v1/models', headers: {} }, model);

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
  // What llama.cpp answers to any route that it does not have.
  ['llama.cpp', 'x', [404, { error: { code: 404, message: 'File Not Found', type: 'not_found_error' } }], true],
  ['Express', 'gpt-6', [404, '<pre>Cannot GET /v1/models/gpt-6</pre>'], true],
  ['FastAPI', 'gpt-6', [404, { detail: 'Not Found' }], true],
  ['a short name in a text', 'n', [404, 'nothing is known'], true],
  ['another name', 'tiny', [200, { id: 'tiny' }], true],
  ['a server that fails', 'gpt-6', [500, 'gpt-6'], true],
  ['a listed model', 'known', [404, "'known' is gone"], true],
])('%s and the model %s', async (_server, model, answer, has) => {
  expect(await ask(LIST, answer, model)).toBe(has);
});

test('a server that lists nothing may have any model', async () => {
  expect(await ask('<html>', [404, "The model 'gpt-6' does not exist"], 'gpt-6')).toBe(true);
});
