import { pino } from 'pino';
import { expect, test } from 'vitest';
import { Metrics } from '../telemetry/metrics.ts';
import { chatAccess, modelAccess, openProviders, type ModelAccess } from './open-providers.ts';
import type { ProviderConfig } from './provider-file.ts';
import type { ModelProviders } from './providers.ts';

const NO_FILE = { modelProvidersFile: undefined };

function opened(access: ModelAccess | undefined, write: (line: string) => void = () => undefined): ModelProviders {
  if (!access) throw new Error('there are providers');
  const log = pino({ level: 'warn' }, { write });
  return openProviders(access, {
    firstChunkSeconds: 1,
    idleSeconds: 1,
    metrics: new Metrics(),
    log,
    shared: undefined,
  });
}

/** Two providers, of which `claude` is the default one. */
function two(more: Partial<ProviderConfig> = {}, write?: (line: string) => void): ModelProviders {
  const provider = { apiKey: 'k', baseUrl: undefined, headers: {}, limits: undefined, models: new Map() };
  const providers = new Map<string, ProviderConfig>([
    ['claude', { kind: 'anthropic', ...provider, acceptsSlashes: false, ...more }],
    ['router', { kind: 'openai-chat', ...provider, acceptsSlashes: true }],
  ]);
  return opened({ name: '', defaultName: 'claude', providers }, write);
}

test.each([
  ['no prefix', 'claude-sonnet-4-5'],
  ['the prefix of a provider', 'claude/claude-sonnet-4-5'],
  ['a slash after the prefix of a provider', 'router/meta/llama'],
])('a name with %s is a name of a model', (_, name) => {
  expect(two().prefixProblem(name)).toBeUndefined();
});

test.each([
  ['anthropic/claude-sonnet-4-5', 'no model provider has the name "anthropic": the names are claude, router;'],
  ['anthropic/claude-sonnet-4-5', 'write claude/anthropic/claude-sonnet-4-5, or set "accepts_slashes"'],
  ['cluade/claude/x', 'no model provider has the name "cluade": did you mean claude/claude/x?'],
  ['/claude', 'no model provider has the name "": the names are'],
])('%s has the prefix of no provider: %s', (name, problem) => {
  expect(two().prefixProblem(name)).toContain(problem);
});

test('a default provider that accepts slashes, or lists the model, gets names with the prefix of no provider', () => {
  expect(two({ acceptsSlashes: true }).prefixProblem('meta/llama')).toBeUndefined();
  const models = new Map([['meta/llama', {}]]);
  expect(two({ models }).prefixProblem('meta/llama')).toBeUndefined();
  expect(two({ models }).prefixProblem('meta/other')).toBeDefined();
});

test.each([
  [undefined, true],
  ['https://api.openai.com/v1', true],
  ['https://eu.api.openai.com/v1', true],
  ['https://openrouter.ai/api/v1', false],
  ['https://notopenai.com/v1', false],
  ['https://my.openai.azure.com/openai/v1', false],
  ['http://10.0.0.7:8000/v1', false],
])('the provider of OPENAI_BASE_URL accepts slashes unless the host is OpenAI’s: %s', async (baseUrl, isOpenAI) => {
  const models = opened(await modelAccess({ openai: { apiKey: 'k', baseUrl }, ...NO_FILE }, {}));
  expect(models.prefixProblem('meta/llama') !== undefined).toBe(isOpenAI);
});

test('the demo model has any name', () => {
  expect(opened(chatAccess('', 'http://127.0.0.1:1/v1')).prefixProblem('org/model')).toBeUndefined();
});

test('an agent of before the rule has the default provider, as the log says once for each model', () => {
  const lines: string[] = [];
  const models = two({}, (line) => void lines.push(line));
  for (const name of ['meta/llama', 'meta/llama', 'm', 'claude/m']) {
    expect(models.resolve(name)).toMatchObject({ providerName: 'claude', model: name.replace('claude/', '') });
  }
  expect(lines.map((line) => JSON.parse(line))).toEqual([
    expect.objectContaining({ model: 'meta/llama', provider: 'claude', msg: expect.stringContaining('"meta"') }),
  ]);
});
