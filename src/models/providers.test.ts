import { pino } from 'pino';
import { expect, test, vi } from 'vitest';
import { Metrics } from '../telemetry/metrics.ts';
import { chatAccess, modelAccess, openProviders, type ModelAccess } from './open-providers.ts';
import type { ProviderConfig } from './provider-file.ts';
import type { FoundModel, ModelProvider } from './provider.ts';
import { ModelProviders } from './providers.ts';

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
    onResponse: () => undefined,
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

/** A default provider `own` that returns this for every model, and how often it was asked. */
function asked(found: FoundModel | undefined, models: ProviderConfig['models'] = new Map()) {
  const find = vi.fn(() => Promise.resolve(found));
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- no model is called
  const provider = { find } as unknown as ModelProvider;
  const own = { provider, options: new Set<never>(), audioTypes: new Set<never>(), models, acceptsSlashes: true };
  return { find, models: new ModelProviders('own', new Map([['own', own]]), { log: pino({ level: 'silent' }) }) };
}

test('a window of the list is the default of the file, and one of an error replaces both', async () => {
  const { models } = asked({ exists: true, contextTokens: 8_192 }, new Map([['set', { context_tokens: 16_384 }]]));
  await models.has('m');
  expect(models.resolve('own/m').contextTokens).toBe(8_192);
  await models.has('set');
  await models.learnContext(models.resolve('set'));
  expect(models.resolve('set').contextTokens).toBe(16_384);
  for (const model of ['m', 'set']) models.noteContext({ providerName: 'own', model }, 4_096);
  expect([models.resolve('m').contextTokens, models.resolve('set').contextTokens]).toEqual([4_096, 4_096]);
});

test('a process that has not looked up a model asks for its window once', async () => {
  const { find, models } = asked({ exists: true, contextTokens: 8_192 });
  const calls = Array.from({ length: 3 }, () => models.learnContext(models.resolve('m')));
  expect(models.resolve('m').contextTokens).toBeUndefined();
  await Promise.all(calls);
  expect(models.resolve('m').contextTokens).toBe(8_192);
  await models.has('own/m');
  expect(find).toHaveBeenCalledTimes(1);
});

test.each([
  ['names no window', { exists: true }],
  ['gives no answer', undefined],
])('a provider that %s is not asked again by the next calls', async (_, found) => {
  const { find, models } = asked(found);
  for (let call = 1; call <= 3; call++) await models.learnContext(models.resolve('m'));
  expect(find).toHaveBeenCalledTimes(1);
});

test('beyond the time for which a lookup is cached, only a provider that gave no answer is asked again', async () => {
  let now = 1_000;
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  try {
    const [answering, down] = [asked({ exists: true }), asked(undefined)];
    for (const calls of [1, 2]) {
      for (const { models } of [answering, down]) await models.learnContext(models.resolve('m'));
      expect([answering.find.mock.calls.length, down.find.mock.calls.length]).toEqual([1, calls]);
      now += 11 * 60_000;
      vi.advanceTimersByTime(10);
    }
  } finally {
    clock.mockRestore();
    vi.useRealTimers();
  }
});

test.each<[string, string[], string]>([
  ['a name like it', ['tiny:latest', 'qwen3:8b'], 'did you mean own/qwen3:8b?'],
  ['other names', ['a', 'b'], 'it lists a, b'],
  ['many names', Array.from({ length: 11 }, (_, i) => `m${i}`), 'it lists m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, …'],
])('what to take instead of a model that is not listed: %s', async (_, others, expected) => {
  const { models } = asked({ exists: true, others });
  expect(models.alternatives('qwen3.8b')).toBeUndefined();
  expect(await models.has('qwen3.8b')).toBe(true);
  expect(models.alternatives('own/qwen3.8b')).toBe(expected);
});
