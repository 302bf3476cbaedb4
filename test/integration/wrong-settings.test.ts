import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { CONFIG_VARIABLES, ConfigError, loadConfig } from '../../src/config.ts';
import { StartupError } from '../../src/lib/errors.ts';
import { startAllInOne } from '../../src/server/all-in-one.ts';
import { everturn } from '../support/command-line.ts';

/** Neither a number nor a URL, a list or a choice, and no file or folder that exists or can be created. */
const NONSENSE = '/proc/nowhere/else';

/** The settings for which it is a valid text, and what then happens: the start fails, or the text is used as it is. */
const ANY_TEXT: Record<string, 'the start fails' | 'it is a name' | 'requests to models fail' | 'no code runs'> = {
  EVERTURN_DATA: 'the start fails',
  EVERTURN_AGENTS: 'the start fails',
  EVERTURN_SKILLS: 'the start fails',
  EVERTURN_MCP_SERVERS: 'the start fails',
  EVERTURN_MODEL_PROVIDERS: 'the start fails',
  TEMPORAL_NAMESPACE: 'the start fails',
  XDG_CACHE_HOME: 'the start fails',
  EVERTURN_OIDC_NAME_CLAIM: 'it is a name',
  EVERTURN_OIDC_ROLE_CLAIM: 'it is a name',
  EVERTURN_TASK_QUEUE: 'it is a name',
  EVERTURN_DEMO_MODEL: 'requests to models fail',
  EVERTURN_DEFAULT_MODEL: 'requests to models fail',
  EVERTURN_EMBEDDING_MODEL: 'requests to models fail',
  OPENAI_API_KEY: 'requests to models fail',
  // `kernel-python.test.ts` has the message for that.
  EVERTURN_KERNEL_PYTHON: 'no code runs',
  EVERTURN_KERNEL_REQUIREMENTS: 'no code runs',
};

const CLUADE = 'no model provider has the name "cluade": did you mean claude/m?';

let dataDir: string;
beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-settings-'));
});
afterAll(() => rm(dataDir, { recursive: true, force: true }));

test.each(CONFIG_VARIABLES.filter((name) => !Object.hasOwn(ANY_TEXT, name)))(
  'a wrong value of %s is reported with its name',
  (name) => {
    const load = () => loadConfig({ [name]: NONSENSE });
    expect(load).toThrow(ConfigError);
    expect(load).toThrow(new RegExp(`(^| )${name} .*must be`));
  },
);

test('the settings that take any text exist', () => {
  expect(CONFIG_VARIABLES).toEqual(expect.arrayContaining(Object.keys(ANY_TEXT)));
});

/** Starts a server in this process. Fails with the error that the command line prints. */
async function start(env: Record<string, string>): Promise<void> {
  const config = loadConfig({
    EVERTURN_DATA: dataDir,
    EVERTURN_PORT: '0',
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: inject('temporalNamespace'),
    ...env,
  });
  const server = await startAllInOne(config, pino({ level: 'silent' }));
  await server.stop();
}

const failing = Object.keys(ANY_TEXT).filter((name) => ANY_TEXT[name] === 'the start fails');

test.each([...failing.map((name) => [name, NONSENSE]), ['DATABASE_URL', `sqlite:${NONSENSE}`]])(
  'a server does not start with a wrong %s, and says so with its name: %s',
  async (name = '', value = '') => {
    const started = start({ [name]: value });
    await expect(started).rejects.toThrow(StartupError);
    await expect(started).rejects.toThrow(name);
  },
);

async function startWithClaude(env: Record<string, string>): Promise<void> {
  const file = path.join(dataDir, 'providers.json');
  await writeFile(file, '{"providers": {"claude": {"kind": "anthropic"}}}');
  await start({ EVERTURN_MODEL_PROVIDERS: file, ...env });
}

test.each(['EVERTURN_DEMO_MODEL', 'EVERTURN_DEFAULT_MODEL', 'EVERTURN_EMBEDDING_MODEL'])(
  'a model of no provider in %s is named',
  async (name) => {
    await expect(startWithClaude({ [name]: 'cluade/m' })).rejects.toThrow(new ConfigError(`${name}: ${CLUADE}`));
  },
);

test('a model for embeddings of a provider with another protocol is named', async () => {
  const started = startWithClaude({ EVERTURN_EMBEDDING_MODEL: 'claude/m' });
  await expect(started).rejects.toThrow(ConfigError);
  await expect(started).rejects.toThrow(
    /^EVERTURN_EMBEDDING_MODEL: the provider claude has the kind anthropic: .*openai-chat/,
  );
});

test('a failed start ends the process with its message alone', async () => {
  const { code, stdout, stderr } = await everturn(['start'], { EVERTURN_DATA: NONSENSE });
  expect([code, stdout]).toEqual([1, '']);
  expect(stderr).toMatch(/^everturn: EVERTURN_DATA must be a folder that this user can create or write: .*\n$/);
});
