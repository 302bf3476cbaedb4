import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient } from '../support/api-client.ts';
import { buildah, buildImage, buildTarget, removeImages } from '../support/base-images.ts';
import { readCompose, type Service } from '../support/compose.ts';
import { Containers } from '../support/containers.ts';
import { blocksOf } from '../support/guides/blocks.ts';
import { HostProxy } from '../support/host-proxy.ts';
import { TestMcpServer } from '../support/mcp-server.ts';
import { held, say, ScriptedModel, use } from '../support/scripted-model.ts';
import { onTestServer } from '../support/test-server.ts';

/**
 * The images of the Dockerfile, built by buildah, and the services of docker-compose.yml, run by crun: without Docker, but
 * with the rights, mounts and health checks that the files give them.
 */

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const KEY = 'key-of-the-operator';
const SERVICES = ['api', 'postgres', 'redis', 'temporal', 'worker'];

/** The operator's project: the Compose file, a file `.env`, and files for Everturn; and the state of the containers. */
let folder: string;
/** The names in the Compose file, and those under which this run builds them. */
const tags: Record<string, string> = Object.fromEntries(
  ['everturn', 'everturn-temporal'].map((name) => [name, `localhost/${name}-${process.pid}`]),
);
let services: Record<string, Service>;
let containers: Containers;
let model: ScriptedModel;
let mcp: TestMcpServer;
const proxies: HostProxy[] = [];
let notes = 0;
let api: ApiClient;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-containers-'));
  await buildTarget('everturn', tags['everturn'] ?? '');
  await buildTarget('temporal', tags['everturn-temporal'] ?? '');
  const write = { name: 'write', annotations: { destructiveHint: true }, handler: () => `note ${(notes += 1)}` };
  [model, mcp] = await Promise.all([ScriptedModel.start(), TestMcpServer.start({ tools: [write] })]);

  await cp(path.join(ROOT, 'docker-compose.yml'), path.join(folder, 'docker-compose.yml'));
  await cp(path.join(ROOT, 'deploy'), path.join(folder, 'deploy'), { recursive: true });
  await mkdir(path.join(folder, 'mine'));
  const env = {
    POSTGRES_PASSWORD: 'a1b2c3',
    EVERTURN_API_KEYS: `me:admin=${KEY}`,
    EVERTURN_FILES: './mine',
    EVERTURN_MCP_SERVERS: '/files/mcp.json',
    OPENAI_API_KEY: 'x',
    LOG_LEVEL: 'warn',
  };
  containers = await Containers.start(path.join(folder, 'state'));
  const proxied = async (url: string) => {
    const proxy = await HostProxy.start(url, containers.hostAddress);
    proxies.push(proxy);
    return proxy.url;
  };
  const lines = Object.entries({ ...env, OPENAI_BASE_URL: await proxied(model.url) });
  await writeFile(path.join(folder, '.env'), lines.map(([name, value]) => `${name}=${value}\n`).join(''));
  const servers = { test: { url: await proxied(mcp.url) } };
  await writeFile(path.join(folder, 'mine', 'mcp.json'), JSON.stringify({ servers }));
  services = await readCompose(folder);
  for (const service of Object.values(services)) service.image = tags[service.image] ?? service.image;
  await containers.up(services);
  api = new ApiClient(containers.url('api', 8080), KEY);
  await ready();
}, 30 * 60_000);

afterAll(async () => {
  for (const proxy of proxies) proxy.stop();
  await containers?.stop();
  await Promise.all([model?.stop(), mcp?.stop()]);
  await removeImages(...Object.values(tags));
  await rm(folder, { recursive: true });
}, 120_000);

/** Waits until requests can be processed, for as long as the test may take. */
async function ready(): Promise<void> {
  const isReady = () =>
    api.send('GET', '/readyz').then(
      ({ status }) => status === 200,
      () => false,
    );
  while (!(await isReady())) await sleep(200);
}

/** A session whose agent may call the tool `write`, each call of which needs an approval. */
async function begin(...scripts: Parameters<ScriptedModel['script']>[1][]) {
  const name = `agent-${crypto.randomUUID()}`;
  model.script(name, ...scripts);
  await api.putAgent(name, { model: { name }, ...onTestServer });
  const sessionId = await api.createSession(name);
  return { sessionId, turn: (input: unknown) => api.turn(sessionId, input) };
}

const allow = (id: string) => ({
  type: 'user.tool_approval',
  thread_id: 'main',
  tool_call_id: id,
  approval: { status: 'allow' },
});

test.each(SERVICES)('%s has no rights, and can write to its volumes and /tmp only', async (name) => {
  const status = await containers.exec(name, 'cat', '/proc/1/status');
  expect(status).toMatch(/^CapEff:\t0+$/m);
  expect(status).toMatch(/^CapBnd:\t0+$/m);
  expect(status).toMatch(/^NoNewPrivs:\t1$/m);
  expect(status).not.toMatch(/^Uid:\t0\t/m);
  if (!['postgres', 'redis'].includes(name)) expect(status).toMatch(/^Uid:\t1000\t/m);
  const written = await containers.exec(name, 'sh', '-c', 'touch /root-is-writable /usr/x 2>&1 || true');
  expect(written).toContain('Read-only file system');
});

test('the images have the packages that their processes need: pages, metrics and help work', async () => {
  expect((await fetch(`${api.url}/docs`)).status).toBe(200);
  for (const name of ['api', 'worker']) {
    expect(await (await fetch(`${containers.url(name, 8081)}/metrics`)).text()).toContain('everturn_up{');
  }
  expect(await containers.exec('api', 'node', 'src/main.ts', 'keys', 'list')).toBeDefined();
});

/** `test:nightly` kills each. */
const KILLED = process.env['KILLS'] === 'all' ? SERVICES : ['worker'];

test.each(KILLED)('a session with an approval continues when the container of %s is killed', async (name) => {
  const before = notes;
  const answer = held(
    (call) => call.text('It is '),
    (call) => call.text('written').finish(),
  );
  const chat = await begin(use({ name: 'write', id: 'w' }), answer.script, say('It is written'));
  expect(await chat.turn('write it down').end()).toMatchObject({
    status: 'done',
    required_actions: [{ type: 'tool.approval_required' }],
  });
  const allowed = chat.turn([allow('w')]);
  const turnId = await allowed.turnId();
  await allowed.says('It is');
  await containers.kill(name);
  answer.release();
  await containers.start(name);
  await ready();
  const ended = await api.subscribe(chat.sessionId, turnId).end();
  expect(ended).toMatchObject({ status: 'done', output: { content: 'It is written' } });
  expect(notes).toBe(before + 1);
});

test('an image of docs/mcp-servers.md has the program of its MCP server, which answers', async () => {
  const dockerfile = blocksOf('docs/mcp-servers.md').find(({ language }) => language === 'dockerfile')?.text ?? '';
  const tag = `${tags['everturn']}-with-files`;
  await buildImage(dockerfile.replace('FROM everturn', `FROM ${tags['everturn']}`), tag);
  const clientInfo = { name: 'test', version: '1' };
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
  const request = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params });
  const container = await buildah('from', tag);
  try {
    const answer = await buildah('run', container, 'sh', '-c', `echo '${request}' | mcp-server-filesystem /tmp`);
    expect(answer).toContain('"serverInfo"');
  } finally {
    await buildah('rm', container);
    await removeImages(tag);
  }
});

test.each(SERVICES)('the health check of %s fails while it hangs', async (name) => {
  await containers.pause(name);
  expect(await containers.isHealthy(name)).toBe(false);
  await containers.goOn(name);
  await expect.poll(() => containers.isHealthy(name)).toBe(true);
});

test.each(SERVICES)('the health check of %s takes less than a hundredth of a core', async (name) => {
  const { interval } = services[name]?.healthcheck ?? {};
  expect(interval).toBe('10s');
  expect(await containers.checkSeconds(name)).toBeLessThan(0.1);
});
