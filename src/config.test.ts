import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { CONFIG_VARIABLES, ConfigError, loadConfig } from './config.ts';

test('an empty environment gives the documented defaults', () => {
  const config = loadConfig({});
  expect(config).toMatchObject({
    host: '127.0.0.1',
    port: 8080,
    apiKeys: [],
    allowPrivateUrls: undefined,
    logLevel: 'info',
    temporal: { external: undefined, namespace: 'everturn', taskQueue: 'everturn' },
    model: { firstChunkSeconds: 600, idleSeconds: 45 },
  });
  expect(config.dataDir).toMatch(/\/\.everturn$/);
});

test.each([
  ['EVERTURN_PORT', 'eighty', 'port number'],
  ['EVERTURN_PORT', '70000', 'port number'],
  ['EVERTURN_WORKER_PORT', 'eighty', 'port number'],
  ['EVERTURN_HOST', 'my host', 'IP address'],
  ['EVERTURN_ALLOW_PRIVATE_URLS', 'perhaps', 'true or false'],
  ['EVERTURN_MODEL_IDLE_SECONDS', '-3', 'positive number of seconds'],
  ['EVERTURN_MODEL_FIRST_CHUNK_SECONDS', '3601', 'at most 3600 seconds'],
  ['EVERTURN_MODEL_RETRY_SECONDS', '2073601', 'at most 2073600 seconds'],
  ['EVERTURN_TURN_TIMEOUT_SECONDS', '1e9', 'at most 2073600 seconds'],
  ['EVERTURN_TURNS', '-1', 'whole number, 0 for no limit'],
  ['EVERTURN_MCP_MESSAGES_PER_MINUTE', '0', 'whole number from 1 to 1000000'],
  ['EVERTURN_MCP_MEGABYTES_PER_MINUTE', '1.5', 'whole number from 1 to 1000000'],
  ['EVERTURN_KERNELS', '-1', 'whole number from 0 to 10000'],
  ['EVERTURN_KERNEL_SANDBOX', 'docker', 'one of auto, bwrap, landlock, none'],
  ['EVERTURN_KERNEL_NETWORK', 'a.com,127.0.0.1', 'none, any, or host names'],
  ['EVERTURN_KERNEL_MEMORY_MB', '64', 'whole number from 128 to 1048576'],
  ['EVERTURN_KERNEL_CPUS', '0', 'number from 0.1 to 1024'],
  ['EVERTURN_KERNEL_TIMEOUT_SECONDS', '86401', 'whole number from 1 to 86400'],
  ['LOG_LEVEL', 'loud', 'one of trace'],
  ['OPENAI_BASE_URL', 'nowhere', 'http or https URL'],
  ['TEMPORAL_ADDRESS', 'temporal', '<host>:<port>'],
  ['TEMPORAL_ADDRESS', '::1:7233', '<host>:<port>'],
  ['TEMPORAL_ADDRESS', '[::1]', '<host>:<port>'],
  ['EVERTURN_TEMPORAL_INSTALL', 'sdk,apt', 'some of sdk, pypi, go, each once'],
  ['EVERTURN_TEMPORAL_INSTALL', 'go,pypi,go', 'some of sdk, pypi, go, each once'],
  ['EVERTURN_DOWNLOAD_TEMPORAL', 'sdk', 'true or false'],
  ['EVERTURN_BUILD_ID', 'everturn:2', 'such as an image tag'],
  ['REDIS_URL', 'http://localhost:6379', 'redis://'],
  ['REDIS_URL', 'redis:///0', 'redis://'],
  ['REDIS_URL', 'redis://localhost/first', 'redis://'],
  ['REDIS_URL', 'redis://:100%@localhost', 'redis://'],
  ['EVERTURN_BLOBS', '/srv/blobs', 's3://<bucket>/<prefix>'],
  ['EVERTURN_BLOBS', 's3://', 's3://<bucket>/<prefix>'],
  ['EVERTURN_BLOBS', 's3://My_Bucket', 's3://<bucket>/<prefix>'],
  ['EVERTURN_BLOBS', 's3://bucket/../other', 's3://<bucket>/<prefix>'],
  ['EVERTURN_BLOBS', 's3://bucket//x', 's3://<bucket>/<prefix>'],
  ['AWS_ENDPOINT_URL_S3', 's3.example.com', 'http or https URL'],
  ['DATABASE_URL', 'mysql://x', 'sqlite:<file>'],
  ['DATABASE_URL', 'sqlite:', 'sqlite:<file>'],
  ['DATABASE_URL', 'postgresql://host', 'postgresql://<user>'],
  ['DATABASE_URL', 'postgres://user:100%@host/database', 'percent-encoded'],
])('%s=%s is rejected with its name and its valid values', (name, value, message) => {
  expect(() => loadConfig({ [name]: value })).toThrow(ConfigError);
  expect(() => loadConfig({ [name]: value })).toThrow(new RegExp(`${name} .*${message}`));
});

test('the CLI is installed in the ways and in the order of the setting, and never by the SDK if that is switched off', () => {
  const installers = (env: Record<string, string>) => loadConfig(env).temporal.installers;
  expect(installers({})).toEqual(['sdk', 'pypi', 'go']);
  expect(installers({ EVERTURN_DOWNLOAD_TEMPORAL: 'false' })).toEqual(['pypi', 'go']);
  expect(installers({ EVERTURN_TEMPORAL_INSTALL: 'go, pypi' })).toEqual(['go', 'pypi']);
  expect(installers({ EVERTURN_TEMPORAL_INSTALL: 'sdk', EVERTURN_DOWNLOAD_TEMPORAL: 'false' })).toEqual([]);
});

test('all invalid settings are named', () => {
  expect(() => loadConfig({ EVERTURN_PORT: 'x', LOG_LEVEL: 'y' })).toThrow(/EVERTURN_PORT.*\n.*LOG_LEVEL/);
});

test('keys become subjects with a role, and never appear in an error', () => {
  const config = loadConfig({ EVERTURN_API_KEYS: 'ann=secret-1, bob:admin=secret-2,c@d.e:approver=se=cr:et' });
  expect(config.apiKeys.map(({ key, caller }) => [key, caller.subject.subjectSlug, caller.roles])).toEqual([
    ['secret-1', 'ann', ['user']],
    ['secret-2', 'bob', ['admin']],
    ['se=cr:et', 'c@d.e', ['approver']],
  ]);
  for (const wrong of ['bob', 'bob:root=secret-2', 'bob:=secret-2', 'bob=secret-1', '=secret-2', 'b b=secret-2']) {
    const load = () => loadConfig({ EVERTURN_API_KEYS: `ann=secret-1,${wrong}` });
    expect(load, wrong).toThrow(/EVERTURN_API_KEYS must be/);
    expect(load, wrong).not.toThrow(/secret/);
  }
});

test('a password in the URL of Redis never appears in an error', () => {
  expect(loadConfig({ REDIS_URL: 'rediss://:secret@redis.example:6380/2' }).redisUrl).toContain('redis.example');
  expect(() => loadConfig({ REDIS_URL: 'redis://:secret@redis.example/x' })).toThrow(/^REDIS_URL must be redis:.*TLS$/);
});

test('the catalog is a file in the data folder, another file, or on PostgreSQL, whose URL never appears in an error', () => {
  const databaseOf = (url: string, env = {}) => loadConfig({ DATABASE_URL: url, ...env }).database;
  const { database, dataDir } = loadConfig({});
  expect(database).toEqual({ kind: 'sqlite', file: `${dataDir}/catalog.db`, sync: 'normal' });
  const external = { TEMPORAL_ADDRESS: 'temporal:7233' };
  expect(databaseOf('sqlite:/tmp/x.db', external)).toEqual({ kind: 'sqlite', file: '/tmp/x.db', sync: 'full' });
  for (const url of ['postgres://u:p@host:1/db', 'postgresql:///db?host=/run/postgresql']) {
    expect(databaseOf(url)).toEqual({ kind: 'postgres', url });
  }
  expect(() => databaseOf('postgres://u:pass-word@host/%')).toThrow(/^DATABASE_URL must be/);
  expect(() => databaseOf('postgres://u:pass-word@host/%')).not.toThrow(/pass-word/);
});

const shared = {
  TEMPORAL_ADDRESS: 'temporal:7233',
  DATABASE_URL: 'sqlite:/shared/catalog.db',
  REDIS_URL: 'redis://redis',
  OPENAI_API_KEY: 'k',
};

test.each(['api', 'worker'] as const)('what %s shares with other processes must be configured', (role) => {
  expect(loadConfig(shared, role).redisUrl).toBe('redis://redis');
  for (const name of Object.keys(shared)) {
    expect(() => loadConfig({ ...shared, [name]: '' }, role)).toThrow(
      new RegExp(`everturn ${role} .*\\n${name} .*must be set`),
    );
  }
  expect(() => loadConfig({ OPENAI_BASE_URL: 'http://models' }, role)).toThrow(
    /\nTEMPORAL_ADDRESS .*\nDATABASE_URL .*\nREDIS_URL .*\neverturn start/,
  );
});

test('workers have versions, and only standalone ones', () => {
  const versioned = { ...shared, EVERTURN_BUILD_ID: 'v1.2-3_gabc' };
  expect(loadConfig(versioned, 'worker').temporal.buildId).toBe('v1.2-3_gabc');
  expect(loadConfig(shared, 'worker').temporal.buildId).toBeUndefined();
  expect(loadConfig(versioned, 'start').temporal.buildId).toBeUndefined();
  for (const queue of ['a.b', 'a:b']) {
    expect(() => loadConfig({ ...versioned, EVERTURN_TASK_QUEUE: queue }, 'worker')).toThrow(
      /^EVERTURN_TASK_QUEUE cannot contain \. or :/,
    );
  }
});

test('a worker has no keys, but still refuses private addresses', () => {
  expect(loadConfig(shared, 'worker').allowPrivateUrls).toBe(false);
  expect(loadConfig({ ...shared, EVERTURN_ALLOW_PRIVATE_URLS: 'true' }, 'worker').allowPrivateUrls).toBe(true);
});

test('no time exceeds the limit of timers', () => {
  const shorter = new Set([
    'EVERTURN_MODEL_FIRST_CHUNK_SECONDS',
    'EVERTURN_MODEL_IDLE_SECONDS',
    'EVERTURN_KERNEL_TIMEOUT_SECONDS',
    'EVERTURN_KERNEL_IDLE_SECONDS',
  ]);
  const variables = CONFIG_VARIABLES.filter((name) => name.endsWith('_SECONDS') && !shorter.has(name));
  const config = loadConfig(Object.fromEntries(variables.map((name) => [name, '2073600'])));
  const { model, tool, turnSeconds, shutdownSeconds } = config;
  for (const seconds of [model.retrySeconds, ...Object.values(tool), turnSeconds, shutdownSeconds]) {
    expect(seconds).toBe(24 * 86_400);
    expect((seconds + 60) * 1000).toBeLessThan(2 ** 31);
  }
});

test('every variable is documented in docs/configuration.md', () => {
  const guide = readFileSync(new URL('../docs/configuration.md', import.meta.url), 'utf8');
  const cells = guide.split('\n').flatMap((line) => /^- ((?:`[A-Z_\d]+`(?:, )?)+)/.exec(line)?.[1] ?? []);
  const documented = cells.flatMap((names) => names.split(', ').map((name) => name.slice(1, -1)));
  expect(documented.toSorted()).toEqual(CONFIG_VARIABLES.toSorted());
});

test.each([
  ['EVERTURN_PRT', 'is not a setting of this server: did you mean EVERTURN_PORT?'],
  ['EVERTURN_TOOL_TIMEOUT', 'is not a setting of this server: did you mean EVERTURN_TOOL_TIMEOUT_SECONDS?'],
  ['EVERTURN_API_KEYS_FIEL', 'is not a setting of this server: did you mean EVERTURN_API_KEYS_FILE?'],
  ['EVERTURN_SOMETHING_ELSE_ENTIRELY', 'is not a setting of this server'],
])('%s is no error, and one warning: it %s', (name, warning) => {
  expect(loadConfig({ [name]: 'x', EVERTURN_HOST: 'localhost' }).warnings).toEqual([`${name} ${warning}`]);
});

test('settings, their files, empty variables, and variables of clients and of other programs are no warnings', () => {
  const others = [
    'EVERTURN_URL',
    'EVERTURN_KEY',
    'EVERTURN_API_KEY',
    'EVERTURN_FILES',
    'EVERTURN_PUBLISH',
    'EVERTUN_X',
  ];
  const env = Object.fromEntries(others.map((name) => [name, 'x']));
  expect(loadConfig({ ...env, EVERTURN_NONE: '', EVERTURN_PORT: '1' }).warnings).toEqual([]);
  const folder = mkdtempSync(path.join(tmpdir(), 'everturn-config-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  writeFileSync(path.join(folder, 'keys'), 'ann=key-of-ann');
  expect(loadConfig({ EVERTURN_API_KEYS_FILE: path.join(folder, 'keys') }).warnings).toEqual([]);
});

test('kernels have no wall only where clients are the operator, or with consent', () => {
  const sandboxOf = (env: NodeJS.ProcessEnv) => loadConfig({ EVERTURN_KERNEL_SANDBOX: 'none', ...env }).kernels.sandbox;
  expect(sandboxOf({})).toBe('none');
  const reachable = [
    { EVERTURN_HOST: '0.0.0.0' },
    { EVERTURN_API_KEYS: 'ann=key-of-ann' },
    { EVERTURN_OIDC_ISSUER: 'https://login.example.com', EVERTURN_OIDC_AUDIENCE: 'everturn' },
  ];
  for (const env of reachable) {
    expect(() => sandboxOf(env), JSON.stringify(env)).toThrow(/^EVERTURN_KERNEL_SANDBOX=none .*NONE_ACCEPTED=true$/);
    expect(sandboxOf({ ...env, EVERTURN_KERNEL_SANDBOX_NONE_ACCEPTED: 'true' })).toBe('none');
    expect(sandboxOf({ ...env, EVERTURN_KERNEL_SANDBOX: 'auto' })).toBe('auto');
  }
});

test('an interpreter for kernels takes no further packages', () => {
  const env = { EVERTURN_KERNEL_PYTHON: '/usr/bin/python3', EVERTURN_KERNEL_REQUIREMENTS: '/srv/more.lock' };
  expect(() => loadConfig(env)).toThrow(/EVERTURN_KERNEL_REQUIREMENTS .*set only one of them/);
});

test('Temporal may be at an IPv6 address', () => {
  const { external } = loadConfig({ TEMPORAL_ADDRESS: '[::1]:7233' }).temporal;
  expect(external?.connectionOptions.address).toBe('[::1]:7233');
});

test("an external Temporal is configured by its own clients' variables", () => {
  const config = loadConfig({ TEMPORAL_ADDRESS: 'temporal.example:7233', TEMPORAL_API_KEY: 'k' });
  expect(config.temporal.namespace).toBe('default');
  expect(config.temporal.external?.connectionOptions).toMatchObject({ address: 'temporal.example:7233', apiKey: 'k' });
});

test('blobs are in the data folder, or in a bucket of AWS or of another server', () => {
  const blobsOf = (env: NodeJS.ProcessEnv) => loadConfig(env).blobs;
  expect(blobsOf({ AWS_ENDPOINT_URL_S3: 'http://s3' })).toBeUndefined();
  expect(blobsOf({ EVERTURN_BLOBS: 's3://my.bucket-1' })).toEqual({ bucket: 'my.bucket-1', prefix: '' });
  expect(blobsOf({ EVERTURN_BLOBS: 's3://bucket/' })).toEqual({ bucket: 'bucket', prefix: '' });
  const env = { EVERTURN_BLOBS: 's3://bucket/a/b_c/env=1/', AWS_ENDPOINT_URL: 'http://aws' };
  expect(blobsOf(env)).toEqual({ bucket: 'bucket', prefix: 'a/b_c/env=1', endpoint: 'http://aws' });
  expect(blobsOf({ ...env, AWS_ENDPOINT_URL_S3: 'http://s3' })).toMatchObject({ endpoint: 'http://s3' });
});

test('encryption keys have ids and 32 bytes each', () => {
  const [a, b] = ['A', 'B'].map((letter) => Buffer.from(letter.repeat(32)).toString('base64'));
  const { encryptionKeys } = loadConfig({ EVERTURN_ENCRYPTION_KEYS: `2026-11:${a}, old.key:${b}` });
  expect(encryptionKeys.map(({ id, key }) => [id, key.toString()])).toEqual([
    ['2026-11', 'A'.repeat(32)],
    ['old.key', 'B'.repeat(32)],
  ]);
  for (const wrong of [a, `k1:${a},k1:${b}`, `k1:${a},`, `k1:${a}A`, 'k1:AAAA', `k 1:${a}`, `${'k'.repeat(33)}:${a}`]) {
    const load = () => loadConfig({ EVERTURN_ENCRYPTION_KEYS: wrong });
    expect(load, wrong).toThrow(/EVERTURN_ENCRYPTION_KEYS must be/);
    expect(load, wrong).not.toThrow('QUFB');
  }
});

test('the issuer and the audience of tokens must be set together', () => {
  const set = { EVERTURN_OIDC_ISSUER: 'https://idp.example/realm', EVERTURN_OIDC_AUDIENCE: 'everturn' };
  const { oidc } = loadConfig(set);
  expect(oidc).toMatchObject({ issuer: 'https://idp.example/realm', nameClaim: 'preferred_username' });
  expect([...(oidc?.roles ?? [])]).toContainEqual(['approver', 'approver']);
  const mapped = loadConfig({ ...set, EVERTURN_OIDC_ROLES: 'ops=admin, app=1=approver' }).oidc?.roles;
  expect([...(mapped ?? [])]).toEqual([
    ['ops', 'admin'],
    ['app=1', 'approver'],
  ]);
  for (const name of Object.keys(set)) {
    expect(() => loadConfig({ ...set, [name]: '' })).toThrow(/EVERTURN_OIDC_ISSUER and EVERTURN_OIDC_AUDIENCE/);
  }
  expect(() => loadConfig({ ...set, EVERTURN_OIDC_ROLES: 'ops=root' })).toThrow(/EVERTURN_OIDC_ROLES must be/);
});

test('proxies are addresses or networks', () => {
  expect(loadConfig({ EVERTURN_TRUSTED_PROXIES: '127.0.0.1, 10.0.0.0/8,fd00::/8' }).trustedProxies).toEqual([
    '127.0.0.1',
    '10.0.0.0/8',
    'fd00::/8',
  ]);
  for (const wrong of ['proxy', '10.0.0.0/33', '1', '::1/129', '10.0.0.0/8/8', ',']) {
    expect(() => loadConfig({ EVERTURN_TRUSTED_PROXIES: wrong }), wrong).toThrow(
      /EVERTURN_TRUSTED_PROXIES must be addr/,
    );
  }
});

test('secrets may be in files, as Docker and Kubernetes mount them', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'everturn-config-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const inFile = (name: string, value: string) => {
    writeFileSync(path.join(folder, name), `${value}\n`);
    return { [`${name}_FILE`]: path.join(folder, name) };
  };
  const config = loadConfig({
    TEMPORAL_ADDRESS: 'temporal.example:7233',
    ...inFile('DATABASE_URL', 'postgres://u:p@host:1/db'),
    ...inFile('REDIS_URL', 'redis://:secret@redis'),
    ...inFile('EVERTURN_API_KEYS', 'ann=key-of-ann'),
    ...inFile('EVERTURN_ENCRYPTION_KEYS', `k:${Buffer.alloc(32).toString('base64')}`),
    ...inFile('OPENAI_API_KEY', 'sk-1'),
    ...inFile('TEMPORAL_API_KEY', 'key-of-temporal'),
  });
  expect(config).toMatchObject({
    database: { url: 'postgres://u:p@host:1/db' },
    redisUrl: 'redis://:secret@redis',
    apiKeys: [{ key: 'key-of-ann' }],
    encryptionKeys: [{ id: 'k' }],
    openai: { apiKey: 'sk-1' },
    temporal: { external: { connectionOptions: { apiKey: 'key-of-temporal' } } },
  });
  const twice = { OPENAI_API_KEY: 'sk-1', OPENAI_API_KEY_FILE: path.join(folder, 'OPENAI_API_KEY') };
  expect(() => loadConfig(twice)).toThrow('OPENAI_API_KEY and OPENAI_API_KEY_FILE are both set');
});
