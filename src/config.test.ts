import { expect, test } from 'vitest';
import { ConfigError, loadConfig } from './config.ts';

test('an empty environment gives the documented defaults', () => {
  const config = loadConfig({});
  expect(config).toMatchObject({
    host: '127.0.0.1',
    port: 8080,
    apiKeys: [],
    allowPrivateUrls: true,
    logLevel: 'info',
    temporal: { foreign: undefined, namespace: 'everturn', taskQueue: 'everturn' },
    model: { idleSeconds: 45 },
  });
  expect(config.dataDir).toMatch(/\/\.everturn$/);
});

test.each([
  ['EVERTURN_PORT', 'eighty', 'port number'],
  ['EVERTURN_PORT', '70000', 'port number'],
  ['EVERTURN_HOST', 'my host', 'IP address'],
  ['EVERTURN_ALLOW_PRIVATE_URLS', 'perhaps', 'true or false'],
  ['EVERTURN_MODEL_IDLE_SECONDS', '-3', 'positive number of seconds'],
  ['LOG_LEVEL', 'loud', 'one of trace'],
  ['OPENAI_BASE_URL', 'nowhere', 'http or https URL'],
  ['TEMPORAL_ADDRESS', 'temporal', '<host>:<port>'],
  ['DATABASE_URL', 'mysql://x', 'sqlite:<file>'],
])('%s=%s is refused with its name and what it should be', (name, value, message) => {
  expect(() => loadConfig({ [name]: value })).toThrow(ConfigError);
  expect(() => loadConfig({ [name]: value })).toThrow(new RegExp(`${name} .*${message}`));
});

test('several wrong settings are all named', () => {
  expect(() => loadConfig({ EVERTURN_PORT: 'x', LOG_LEVEL: 'y' })).toThrow(/EVERTURN_PORT.*\n.*LOG_LEVEL/);
});

test('keys become subjects, and never stand in an error', () => {
  const config = loadConfig({ EVERTURN_API_KEYS: 'ann=secret-1, bob=secret-2' });
  expect(config.apiKeys.map(({ key, subject }) => [key, subject.subjectSlug])).toEqual([
    ['secret-1', 'ann'],
    ['secret-2', 'bob'],
  ]);
  expect(config.allowPrivateUrls).toBe(false);
  expect(() => loadConfig({ EVERTURN_API_KEYS: 'ann=secret-1,bob' })).toThrow(/EVERTURN_API_KEYS must be/);
  expect(() => loadConfig({ EVERTURN_API_KEYS: 'ann=secret-1,bob' })).not.toThrow(/secret/);
});

test('an address that others can reach needs keys', () => {
  expect(() => loadConfig({ EVERTURN_HOST: '0.0.0.0' })).toThrow(/EVERTURN_API_KEYS/);
  expect(loadConfig({ EVERTURN_HOST: '0.0.0.0', EVERTURN_API_KEYS: 'ann=secret-1' }).host).toBe('0.0.0.0');
});

test("a foreign Temporal is configured by its own clients' names", () => {
  const config = loadConfig({ TEMPORAL_ADDRESS: 'temporal.example:7233', TEMPORAL_API_KEY: 'k' });
  expect(config.temporal.namespace).toBe('default');
  expect(config.temporal.foreign?.connectionOptions).toMatchObject({ address: 'temporal.example:7233', apiKey: 'k' });
});
