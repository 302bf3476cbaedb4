import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, inject, onTestFinished, test, vi } from 'vitest';
import { newId } from '../../src/engine/new-id.ts';
import { copyImageFiles } from '../support/image-folder.ts';
import { keptPort } from '../support/kept-port.ts';
import { IN_MOUNT_NAMESPACE } from '../support/mount-namespace.ts';
import { killAtEnd } from '../support/reaper.ts';
import { TestRedis } from '../support/redis.ts';
import { say, ScriptedModel } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';

const run = promisify(execFile);

vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

/** Where the image and its volume are mounted: a folder that every machine has, since the root cannot be written. */
const APP = '/mnt';

let image: string;
let redis: TestRedis;
let model: ScriptedModel;
beforeAll(async () => {
  image = await mkdtemp(path.join(tmpdir(), 'everturn-image-'));
  [redis, model] = await Promise.all([TestRedis.start(), ScriptedModel.start()]);
  await copyImageFiles(image);
  await mkdir(path.join(image, 'data'));
  await run(process.execPath, ['src/temporal/make-workflow-bundles.ts'], { cwd: image });
});
afterAll(async () => {
  await Promise.all([redis.down(), model.stop()]);
  await rm(image, { recursive: true });
});

/**
 * Starts a worker as a container of docker-compose.yml has it: without capabilities, on a root that can only be read, with
 * a `/tmp` in memory from which no program runs, as Docker mounts it. It is stopped at the end of the test.
 * @throws Error with its output if it ends
 */
async function startWorker(env: Record<string, string>): Promise<ChildProcess> {
  const mounts = [
    `mount --bind ${image} ${APP}`,
    `mount --bind ${APP}/data ${APP}/data`,
    'mount -t tmpfs -o rw,noexec,nosuid,nodev,size=1m tmpfs /tmp',
    `mount -o remount,bind,ro ${APP}`,
    'mount -o remount,bind,ro /',
  ];
  const rights = 'setpriv --no-new-privs --bounding-set=-all --inh-caps=-all';
  const script = `${mounts.join(' && ')} && cd ${APP} && exec ${rights} "$@"`;
  const [command, ...args] = [...IN_MOUNT_NAMESPACE, 'sh', '-c', script, 'sh', process.execPath, 'src/main.ts'];
  const { PATH = '' } = process.env;
  const child = killAtEnd(
    spawn(command, [...args, 'worker'], { env: { PATH, HOME: '/root', ...env }, stdio: ['ignore', 'pipe', 'pipe'] }),
  );
  let output = '';
  const polls = Promise.withResolvers<void>();
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      if (output.includes("Everturn's worker polls")) polls.resolve();
    });
  }
  const exited = once(child, 'exit');
  onTestFinished(async () => {
    child.kill('SIGTERM');
    await exited;
  });
  child.once('exit', (code) => polls.reject(new Error(`it exited with ${code}:\n${output}`)));
  await polls.promise;
  return child;
}

/** The settings of an API or a worker, whose data folder is `data`. */
function settings(data: string, port: number, taskQueue: string): Record<string, string> {
  return {
    EVERTURN_TASK_QUEUE: taskQueue,
    EVERTURN_DATA: data,
    EVERTURN_PORT: String(port),
    EVERTURN_WORKER_PORT: String(port),
    DATABASE_URL: `sqlite:${data}/catalog.db`,
    REDIS_URL: redis.url,
    OPENAI_API_KEY: 'x',
    OPENAI_BASE_URL: model.url,
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: inject('temporalNamespace'),
    LOG_LEVEL: 'warn',
  };
}

test('a worker runs turns where nothing can be written, and no program runs from /tmp', async () => {
  const [taskQueue, port, data] = [newId('req'), await keptPort(), path.join(image, 'data')];
  const worker = await startWorker(settings(`${APP}/data`, port, taskQueue));
  await expect.poll(async () => (await fetch(`http://127.0.0.1:${port}/readyz`)).status).toBe(200);
  const status = await readFile(`/proc/${worker.pid}/status`, 'utf8');
  expect(status).toMatch(/^CapEff:\t0+$/m);
  expect(status).toMatch(/^NoNewPrivs:\t1$/m);

  const outside = await ServerProcess.prepare(data, settings(data, await keptPort(), taskQueue), 'api');
  await outside.start();
  onTestFinished(() => outside.kill());
  const agent = newId('req');
  model.script(agent, say('Hello.'));
  await outside.api.putAgent(agent, { model: { name: agent } });
  const sessionId = await outside.api.createSession(agent);
  const ended = await outside.api.turn(sessionId, 'hello').end();
  expect(ended).toMatchObject({ status: 'done', output: { content: 'Hello.' } });
});

test('an image has the workflow bundles of workers with encryption and with versions', async () => {
  const variant = { EVERTURN_ENCRYPTION_KEYS: `k:${'A'.repeat(43)}=`, EVERTURN_BUILD_ID: '1.0' };
  const env = settings(`${APP}/data`, await keptPort(), newId('req'));
  await startWorker({ ...env, DATABASE_URL: `sqlite:${APP}/data/encrypted.db`, ...variant });
  const bundles = await readdir(path.join(image, 'workflow-bundles'));
  const variants = ['', '-encodes-failures', '-encodes-failures-versioned', '-versioned'];
  expect(bundles.map((name) => name.replace(/^[\da-f]{64}/, '')).toSorted()).toEqual(
    variants.map((one) => `${one}.js`).toSorted(),
  );
});

test('a worker of an image whose bundles are of other sources ends with what to do', async () => {
  const file = path.join(image, 'workflows', 'index.ts');
  const source = await readFile(file);
  await appendFile(file, '// changed');
  onTestFinished(() => writeFile(file, source));
  const started = startWorker(settings(`${APP}/data`, await keptPort(), newId('req')));
  await expect(started).rejects.toThrow(
    /workflow-bundles has no bundle of these workflow sources .*build the image again/,
  );
});
