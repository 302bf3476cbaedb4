import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { redact } from '../lib/redact.ts';
import { Metrics } from '../telemetry/metrics.ts';
import { modelAccess, openProviders } from './open-providers.ts';

const log = pino({ level: 'silent' });
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-providers-'));
});
afterAll(() => rm(folder, { recursive: true }));

const NO_OPENAI = { apiKey: undefined, baseUrl: undefined };

async function access(content: unknown, { env = {}, openai = NO_OPENAI }: { env?: object; openai?: object } = {}) {
  const file = path.join(folder, 'providers.json');
  await writeFile(file, typeof content === 'string' ? content : JSON.stringify(content));
  return modelAccess({ openai: { ...NO_OPENAI, ...openai }, modelProvidersFile: file }, { ...env });
}

const claude = { kind: 'anthropic', api_key_env: 'CLAUDE_KEY', headers: { 'x-team': '${TEAM}' } };
const env = { CLAUDE_KEY: 'sk-very-secret', TEAM: 'team-token-1' };

test('providers by name, with keys and headers from variables', async () => {
  const price = { input: 3, cached_input: 0.3, output: 15 };
  const models = { 'claude-1': { price }, 'claude-2': { context_tokens: 200_000 } };
  const found = await access({ providers: { claude: { ...claude, limits: { concurrency: 4 }, models } } }, { env });
  expect(found).toMatchObject({ name: 'claude', defaultName: 'claude' });
  expect(found?.providers.get('claude')).toEqual({
    kind: 'anthropic',
    apiKey: 'sk-very-secret',
    baseUrl: undefined,
    headers: { 'x-team': 'team-token-1' },
    limits: { concurrency: 4, requestsPerMinute: Infinity, tokensPerMinute: Infinity },
    models: new Map([
      ['claude-1', { price }],
      ['claude-2', { context_tokens: 200_000 }],
    ]),
    acceptsSlashes: false,
  });
  expect(redact('sk-very-secret team-token-1')).toBe('[hidden] [hidden]');
});

test('keys and headers may be in files, as Docker mounts secrets', async () => {
  const secret = async (name: string, value: string) => {
    await writeFile(path.join(folder, name), `${value}\n`);
    return { [`${name}_FILE`]: path.join(folder, name) };
  };
  const files = { ...(await secret('CLAUDE_KEY', 'sk-in-a-file')), ...(await secret('TEAM', 'team-in-a-file')) };
  const found = await access({ providers: { claude } }, { env: files });
  expect(found?.providers.get('claude')).toMatchObject({
    apiKey: 'sk-in-a-file',
    headers: { 'x-team': 'team-in-a-file' },
  });
});

test('OPENAI_API_KEY adds the provider openai, and is the default unless the file names another', async () => {
  const openai = { apiKey: 'k', baseUrl: 'http://openai' };
  const both = await access({ providers: { claude } }, { env, openai });
  expect([...(both?.providers.keys() ?? [])]).toEqual(['openai', 'claude']);
  expect(both?.defaultName).toBe('openai');
  expect((await access({ default: 'claude', providers: { claude } }, { env, openai }))?.defaultName).toBe('claude');
  const own = await access({ providers: { openai: { kind: 'openai-responses' } } }, { openai });
  expect(own?.providers.get('openai')).toMatchObject({ kind: 'openai-responses', baseUrl: undefined });
});

test('names with the prefix of a provider are its models, all others the default one’s', async () => {
  const price = { input: 1, output: 2 };
  const local = { kind: 'openai-chat', base_url: 'http://local', models: { m: { price } }, accepts_slashes: true };
  const two = { claude, local };
  const found = await access({ default: 'local', providers: two }, { env });
  if (!found) throw new Error('there are providers');
  const models = openProviders(found, {
    firstChunkSeconds: 1,
    idleSeconds: 1,
    metrics: new Metrics(),
    log,
    shared: undefined,
    onResponse: () => undefined,
  });
  expect(models.resolve('claude/x')).toMatchObject({ providerName: 'claude', model: 'x' });
  expect(models.resolve('meta/llama')).toMatchObject({ providerName: 'local', model: 'meta/llama' });
  expect(models.prefixProblem('meta/llama')).toBeUndefined();
  const usage = {
    inputTokens: 1_000_000,
    outputTokens: 10,
    cacheReadTokens: 0,
    cacheWriteTokens: 0,
    reasoningTokens: 0,
  };
  expect(models.resolve('m').cost(usage)).toBeCloseTo(1.00002, 9);
  expect(models.resolve('other').cost(usage)).toBeUndefined();
  expect(await models.has('local/m')).toBe(true);
});

test.each<[unknown, RegExp]>([
  ['{"providers": nope}', /is not JSON/],
  [{ providers: [] }, /providers: must be an object of providers by name/],
  [{ providers: { 'a/b': { kind: 'google' } } }, /providers/],
  [{ providers: { a: { kind: 'cohere' } } }, /providers\.a\.kind: must be one of openai-chat, openai-responses/],
  [
    { providers: { a: { kind: 'google', base_url: 'nowhere' } } },
    /providers\.a\.base_url: must be an http or https URL/,
  ],
  [{ providers: { a: { kind: 'google', api_key: 'x' } } }, /providers\.json: providers\.a: .*"api_key".*api_key_env/],
  [{ provider: {}, providers: {} }, /providers\.json: the file: .*"provider".*"providers"/],
  [
    { providers: { a: { kind: 'google', limits: { concurency: 1 } } } },
    /providers\.a\.limits: .*"concurency".*"concurrency"/,
  ],
  [{ providers: { a: { kind: 'google', accepts_slashes: 'yes' } } }, /accepts_slashes: must be true or false/],
  [{ providers: { a: { kind: 'google', api_key_env: 'sk-123' } } }, /not the key itself/],
  [{ providers: { a: { kind: 'google', api_key_env: 'MISSING' } } }, /a\.api_key_env: MISSING is not set/],
  [{ providers: { a: { ...claude, api_key_env: undefined } } }, /providers\.a\.headers\.x-team: TEAM is not set/],
  [{ providers: { a: { kind: 'google', limits: { concurrency: 0 } } } }, /limits\.concurrency: must be at least 1/],
  [
    { providers: { a: { kind: 'google', models: { m: { price: { input: -1, output: 1 } } } } } },
    /models\.m\.price\.input: must not be negative/,
  ],
  [{ default: 'b', providers: { a: { kind: 'google' } } }, /default: must be the name of one of the providers/],
  [{ providers: { a: { kind: 'google' }, b: { kind: 'google' } } }, /default: must be the name of the provider of/],
])('%j is rejected: %s', async (content, message) => {
  const rejected = access(content);
  await expect(rejected).rejects.toThrow(message);
  await expect(rejected).rejects.toThrow(/^EVERTURN_MODEL_PROVIDERS: /);
});

test('the file may be absent', async () => {
  expect(await modelAccess({ openai: NO_OPENAI, modelProvidersFile: undefined }, {})).toBeUndefined();
  const missing = modelAccess({ openai: NO_OPENAI, modelProvidersFile: path.join(folder, 'none.json') }, {});
  await expect(missing).rejects.toThrow(/cannot be read/);
});

test('a compatible server has a URL, and may have limits of silence and another parameter', async () => {
  const own = { kind: 'openai-compatible', base_url: 'http://127.0.0.1:8000/v1' };
  const more = { first_chunk_seconds: 900, idle_seconds: 90.5, max_tokens_parameter: 'max_completion_tokens' };
  const found = await access({ providers: { own: { ...own, ...more } } });
  expect(found?.providers.get('own')).toMatchObject({
    kind: 'openai-chat',
    baseUrl: own.base_url,
    firstChunkSeconds: 900,
    idleSeconds: 90.5,
    maxTokensParameter: 'max_completion_tokens',
  });
  const problems: [object, string][] = [
    [{ base_url: undefined }, 'base_url: must be the URL of the server'],
    [{ idle_seconds: 0 }, 'idle_seconds: must be a positive number'],
    [{ first_chunk_seconds: 3_601 }, 'first_chunk_seconds: must be at most 3600'],
    [{ max_tokens_parameter: 'limit' }, 'max_tokens_parameter: must be max_tokens or max_completion_tokens'],
  ];
  for (const [wrong, problem] of problems) {
    await expect(access({ providers: { own: { ...own, ...wrong } } })).rejects.toThrow(`providers.own.${problem}`);
  }
});
