import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient, type Frame } from '../support/api-client.ts';
import { buildah, buildImage, buildTarget, removeImages } from '../support/base-images.ts';
import { readCompose, type Service } from '../support/compose.ts';
import { Containers } from '../support/containers.ts';
import { cell, responsesIn } from '../support/code-turns.ts';
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
const SERVICES = ['api', 'kernels', 'postgres', 'redis', 'temporal', 'worker'];

/** The operator's project: the Compose file, a file `.env`, and files for Everturn; and the state of the containers. */
let folder: string;
/** The names in the Compose file, and those under which this run builds them. */
const tags: Record<string, string> = Object.fromEntries(
  ['everturn', 'everturn-kernels', 'everturn-temporal'].map((name) => [name, `localhost/${name}-${process.pid}`]),
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
  await buildTarget('kernels', tags['everturn-kernels'] ?? '');
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
  const { kernels } = services;
  if (!kernels) throw new Error('the file has no kernel host');
  kernels.environment = { ...kernels.environment, LOG_LEVEL: 'info' };
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

/** A session of an agent, whose model follows the scripts. */
async function begin(spec: object, ...scripts: Parameters<ScriptedModel['script']>[1][]) {
  const name = `agent-${crypto.randomUUID()}`;
  model.script(name, ...scripts);
  await api.putAgent(name, { model: { name }, ...spec });
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

/** Acts that code must not do in the container of its kernel host, which does them: it has the user, and the secrets. */
const OUTSIDE = `
import json, os, socket
acts = {
    "read the settings of the host": lambda: open("/proc/1/environ", "rb").read(1),
    "list the blobs": lambda: os.listdir("/data"),
    "list the sandboxes of others": lambda: os.listdir("/sandboxes"),
    "reach the database": lambda: socket.create_connection(("ADDRESS", 5432), 5),
    "start a program": lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
    "signal the host": lambda: os.kill(1, 0),
}
def refusal(act):
    try:
        act()
        return "done"
    except OSError as error:
        return type(error).__name__
print(json.dumps({name: refusal(act) for name, act in acts.items()}))
`;

/** A turn whose code runs without asking: its events, and the results of its cells. */
async function runCode(...codes: string[]): Promise<{ events: Frame[]; printed: string[] }> {
  const { turn } = await begin(
    { code_actions: { approvals: 'allow' } },
    ...codes.map((code) => cell(code)),
    say('done'),
  );
  const events = await turn('go').done;
  return { events, printed: responsesIn(events).map(({ content }) => content) };
}

/** How a kernel host reports which wall it has. */
async function wallOf(name: string): Promise<string | undefined> {
  await expect
    .poll(() => containers.log(name), { timeout: 120_000 })
    .toMatch(/"kernels can be started"|no kernel can be/);
  return /"isolation":"(\w+)"/.exec(await containers.log(name))?.[1];
}

test('code runs with the packages of the image, behind a wall that stands without any right', async () => {
  expect(await wallOf('kernels')).toBe('confined');
  const { hostname } = new URL(containers.url('postgres', 5432));
  const { events, printed } = await runCode(
    'import pandas\nprint(pandas.Series([40, 2]).sum())',
    OUTSIDE.replace('ADDRESS', hostname),
    '!id -u; cat /proc/1/environ; ls /data',
  );
  expect(events).toContainEqual(expect.objectContaining({ type: 'sandbox.created', isolation: 'confined' }));
  expect(printed[0]).toBe('42');
  expect([...new Set(Object.values(JSON.parse(printed[1] ?? '') as object))], printed[1]).toEqual(['PermissionError']);
  expect(printed[2]).toMatch(/^1000\n(cat|ls): .*Permission denied\n(cat|ls): .*Permission denied$/);
});

test('a kernel host that is started again removes what the one before has left', async () => {
  const list = ['sh', '-c', 'echo /sandboxes/everturn-kernel-host-*'];
  const folders = async () => (await containers.exec('kernels', ...list)).trim().split(' ');
  const before = new Set(await folders());
  await containers.kill('kernels');
  await containers.start('kernels');
  const after = new Set(await folders());
  expect([before.size, after.size, after.intersection(before).size]).toEqual([1, 1, 0]);
});

/** `test:nightly` kills each. */
const KILLED = process.env['KILLS'] === 'all' ? SERVICES : ['worker'];

test.each(KILLED)('a session with an approval continues when the container of %s is killed', async (name) => {
  const before = notes;
  const answer = held(
    (call) => call.text('It is '),
    (call) => call.text('written').finish(),
  );
  // Each call of its tool needs an approval.
  const chat = await begin(onTestServer, use({ name: 'write', id: 'w' }), answer.script, say('It is written'));
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

/** Runs a program in an image that is made as a page of the documentation says. */
async function runInImageOf(page: string, base: string, ...program: string[]): Promise<string> {
  const dockerfile = blocksOf(page).find(({ language }) => language === 'dockerfile')?.text ?? '';
  const tag = `${tags[base]}-of-docs`;
  await buildImage(dockerfile.replace(`FROM ${base}\n`, `FROM ${tags[base]}\n`), tag);
  const container = await buildah('from', tag);
  try {
    return await buildah('run', container, ...program);
  } finally {
    await buildah('rm', container);
    await removeImages(tag);
  }
}

test('an image of docs/mcp-servers.md has the program of its MCP server, which answers', async () => {
  const clientInfo = { name: 'test', version: '1' };
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
  const request = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params });
  const program = `echo '${request}' | mcp-server-filesystem /tmp`;
  expect(await runInImageOf('docs/mcp-servers.md', 'everturn', 'sh', '-c', program)).toContain('"serverInfo"');
});

test('an image of docs/deployment.md has the further package, and those of Everturn', async () => {
  const program = 'import pandas, seaborn; print("imported")';
  const printed = await runInImageOf(
    'docs/deployment.md',
    'everturn-kernels',
    '/opt/kernels/bin/python3',
    '-c',
    program,
  );
  expect(printed).toBe('imported');
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
