import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Client, Connection } from '@temporalio/client';
import { NativeConnection } from '@temporalio/worker';
import { createLogger } from '../src/telemetry/logger.ts';
import { installTemporalRuntime } from '../src/telemetry/temporal-runtime.ts';
import { BenchClient } from './bench-client.ts';
import { Baseline } from './baseline.ts';
import { startStandalone, startPair, startAllInOne, type Deployment } from './deployments.ts';
import { WORDS } from './model-script.ts';

/**
 * Measures the cost of Everturn beside Temporal alone in one run: the same Temporal server, the same machine, and a model
 * and a tool that respond immediately. There are three measurements: one process with the embedded Temporal
 * (`all-in-one`); an API process and a worker on PostgreSQL and Redis (`standalone`); and the cost of encryption beside
 * the same turns without it (`encrypted`). `--deployment` selects some of them, `--json` prints each as one line of JSON.
 */

const ROUNDS = 3;
const STEPS = 100;
const READERS = 1_000;
const DEPLOYMENTS = {
  'all-in-one': () => inFolder((setting) => measureDeployment(setting, startAllInOne)),
  standalone: () => inFolder((setting) => measureDeployment(setting, startStandalone)),
  encrypted: () => inFolder(measureEncryption),
};

const { values: options } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    deployment: { type: 'string', default: Object.keys(DEPLOYMENTS).join() },
  },
});

interface Report {
  first_delta_ms: number;
  first_delta_behind_200_ms: number;
  bare_first_delta_behind_200_ms: number;
  step_ms: number;
  baseline_step_ms: number;
  step_ratio: number;
  step_ratio_with_reader: number;
  bytes_per_step: Record<string, number>;
  turns_per_second: Record<string, number>;
  turns_ratio_16: number;
  /** Latency from the model's word to 1,000 readers: all of one turn, and five of each of 200 turns. */
  fan_out: { one_turn: FanOut; turns_200: FanOut };
}

interface FanOut {
  /** Words that a reader got twice, on average, because a model call that was considered lost was repeated. */
  said_again: number;
  lag_p50_ms: number;
  lag_p99_ms: number;
  /** Memory of the process that the readers are connected to, before and at the end. */
  memory_mb: [number, number];
}

const log = createLogger({ logLevel: 'warn' });
/** Installed only if the baseline's workflows run: it lasts until the last worker has ended. */
let runtimeInstalled: Promise<void> | undefined;
for (const [name, measureIt] of Object.entries(DEPLOYMENTS)) {
  if (!options.deployment.split(',').includes(name)) continue;
  say(`--- ${name}`);
  const report = { [name]: await measureIt() };
  process.stdout.write(`${JSON.stringify(report, null, options.json ? undefined : 2)}\n`);
}

interface Setting {
  folder: string;
  /** Names the model and the tools that respond immediately. */
  env: Record<string, string>;
  modelUrl: string;
  /** Run at the end, the last one first. */
  cleanup: (() => Promise<unknown>)[];
}

async function inFolder<T>(work: (setting: Setting) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-bench-'));
  const cleanup: Setting['cleanup'] = [() => rm(folder, { recursive: true, force: true })];
  try {
    const instant = await startBeside<{ model: string; mcp: string }>('instant-servers.ts', [], cleanup);
    const mcpFile = path.join(folder, 'mcp.json');
    await writeFile(mcpFile, JSON.stringify({ servers: { bench: { url: instant.mcp } } }));
    const env = { EVERTURN_MCP_SERVERS: mcpFile, OPENAI_API_KEY: 'none', OPENAI_BASE_URL: instant.model };
    return await work({ folder, env, modelUrl: instant.model, cleanup });
  } finally {
    for (const step of cleanup.toReversed()) await step();
  }
}

async function connect({ temporal }: Deployment, cleanup: Setting['cleanup']): Promise<Client> {
  const connection = await Connection.connect(temporal.connectionOptions);
  cleanup.push(() => connection.close());
  return new Client({ connection, namespace: temporal.namespace });
}

async function measureDeployment(
  { modelUrl, cleanup, ...setting }: Setting,
  start: typeof startAllInOne | typeof startStandalone,
): Promise<Report> {
  runtimeInstalled ??= installTemporalRuntime(log);
  await runtimeInstalled;
  const deployment = await start({ ...setting, log, cleanup });
  const temporalClient = await connect(deployment, cleanup);
  const native = await NativeConnection.connect(deployment.temporal.connectionOptions);
  cleanup.push(() => native.close());
  const baseline = await Baseline.start(temporalClient, native, deployment.temporal.namespace);
  cleanup.push(() => baseline.stop());

  const client = new BenchClient(deployment.url, temporalClient);
  await client.putAgents();
  const bare = await startBeside<{ url: string }>('bare-handler.ts', [modelUrl], cleanup);
  return measure({ client, baseline, deployment, bareUrl: bare.url, modelUrl });
}

interface Cost {
  plain: number;
  encrypted: number;
  ratio: number;
}

/** Runs the same turns on two processes of one Temporal, alternately, so that both run under the same load. */
async function measureEncryption({ cleanup, ...setting }: Setting): Promise<Record<string, Cost>> {
  const pair = await startPair({ ...setting, log, cleanup });
  const temporalClient = await connect(pair.plain, cleanup);
  const clientOf = async ({ url }: Deployment): Promise<BenchClient> => {
    const client = new BenchClient(url, temporalClient);
    await client.putAgents();
    await client.timeOfSteps(20, { reader: true });
    return client;
  };
  const [plain, encrypted] = [await clientOf(pair.plain), await clientOf(pair.encrypted)];
  const compare = async (
    what: string,
    rounds: number,
    work: (client: BenchClient) => Promise<number>,
  ): Promise<Cost> => {
    say(what);
    const values: Record<'plain' | 'encrypted', number[]> = { plain: [], encrypted: [] };
    for (let i = 0; i < rounds; i++) {
      values.plain.push(await work(plain));
      values.encrypted.push(await work(encrypted));
    }
    const [without, withKey] = [median(values.plain), median(values.encrypted)];
    return { plain: round(without), encrypted: round(withKey), ratio: round(withKey / without, 3) };
  };
  return {
    first_delta_ms: await compare('first delta', 40, async (client) => {
      const { onKnownSessions } = await client.firstDeltas(1);
      return onKnownSessions[0] ?? Number.NaN;
    }),
    step_ms: await compare(`${STEPS} steps with a reader, ${ROUNDS} times each`, ROUNDS, async (client) => {
      return (await client.timeOfSteps(STEPS, { reader: true })) / STEPS;
    }),
    bytes_per_step: await compare('history bytes', 1, async (client) => (await client.bytesOfSteps(STEPS)) / STEPS),
    turns_per_second_16: await compare('turns per second, 16 at once', ROUNDS, async (client) => {
      const sessions = await client.sessions('plain', 16);
      return rate(160, 16, (worker) => client.turn(sessions[worker] ?? ''));
    }),
  };
}

interface Setup {
  client: BenchClient;
  baseline: Baseline;
  deployment: Deployment;
  bareUrl: string;
  modelUrl: string;
}

async function measure({ client, baseline, deployment, bareUrl, modelUrl }: Setup): Promise<Report> {
  say('warming up');
  await baseline.run(40);
  await client.timeOfSteps(20, { reader: false });
  await client.timeOfSteps(20, { reader: true });

  say('first delta');
  const first = await client.firstDeltas(40);
  say('first delta with a model that waits 200 ms');
  const thinking = await client.firstDeltasBehind('thinking', bareUrl, 40);

  say(`${STEPS} steps, ${ROUNDS} times each`);
  const baselines: number[] = [];
  const alone: number[] = [];
  const watched: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    baselines.push((await timed(() => baseline.run(2 * STEPS))) / STEPS);
    alone.push((await client.timeOfSteps(STEPS, { reader: false })) / STEPS);
    watched.push((await client.timeOfSteps(STEPS, { reader: true })) / STEPS);
  }

  say('history bytes');
  const bytes: Record<string, number> = {};
  for (const steps of [20, 100, 400]) bytes[steps] = Math.round((await client.bytesOfSteps(steps)) / steps);

  const turns: Record<string, number> = {};
  let baselineOf16 = 0;
  for (const atOnce of [1, 16, 64]) {
    say(`turns per second, ${atOnce} at once`);
    const count = atOnce === 1 ? 60 : 320;
    // The activities of such a turn: callModel and archiveTurn.
    const baselineRate = await rate(count, atOnce, () => baseline.run(2));
    const sessions = await client.sessions('plain', atOnce);
    turns[atOnce] = await rate(count, atOnce, (worker) => client.turn(sessions[worker] ?? ''));
    say(`  ${turns[atOnce]?.toFixed(1)}, bare workflows ${baselineRate.toFixed(1)}`);
    if (atOnce === 16) baselineOf16 = baselineRate;
  }
  const baselineStep = median(baselines);
  return {
    first_delta_ms: round(median(first.onKnownSessions)),
    first_delta_behind_200_ms: round(median(thinking.durable)),
    bare_first_delta_behind_200_ms: round(median(thinking.bare)),
    step_ms: round(median(alone)),
    baseline_step_ms: round(baselineStep),
    step_ratio: round(median(alone) / baselineStep, 3),
    step_ratio_with_reader: round(median(watched) / baselineStep, 3),
    bytes_per_step: bytes,
    turns_per_second: Object.fromEntries(Object.entries(turns).map(([key, value]) => [key, round(value)])),
    turns_ratio_16: round((turns[16] ?? 0) / baselineOf16, 3),
    fan_out: {
      one_turn: await fanOut({ client, deployment, modelUrl, turns: 1 }),
      turns_200: await fanOut({ client, deployment, modelUrl, turns: 200 }),
    },
  };
}

/** Measures this many turns that stream at once, to 1,000 readers in total. */
async function fanOut({
  client,
  deployment,
  modelUrl,
  turns: count,
}: Pick<Setup, 'client' | 'deployment' | 'modelUrl'> & { turns: number }): Promise<FanOut> {
  say(`${READERS} readers of ${count} turns`);
  const turns = await client.startTalking(count);
  const before = await deployment.memoryMb();
  const script = fileURLToPath(new URL('readers.ts', import.meta.url));
  const args = [script, `${deployment.url}/v1/agents/sessions`, String(READERS / count)];
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  child.stdin.end(turns.map(({ sessionId, turnId }) => `${sessionId} ${turnId}\n`).join(''));
  await lines.next();
  await fetch(`${modelUrl}/talk`, { method: 'POST' });
  const { value: line } = await lines.next();
  const { words, unfinished, p50, p99 } = JSON.parse(line ?? '{}') as Record<string, number>;
  const after = await deployment.memoryMb();
  const expected = WORDS * READERS;
  if ((words ?? 0) < expected || unfinished) {
    throw new Error(`readers got ${words} of ${expected} words, ${unfinished} no end`);
  }
  return {
    said_again: ((words ?? 0) - expected) / READERS,
    lag_p50_ms: round(p50 ?? Number.NaN),
    lag_p99_ms: round(p99 ?? Number.NaN),
    memory_mb: [round(before, 0), round(after, 0)],
  };
}

/** Tasks per second, with `atOnce` tasks running at any time. */
async function rate(count: number, atOnce: number, task: (worker: number) => Promise<unknown>): Promise<number> {
  let left = count;
  const elapsed = await timed(() =>
    Promise.all(
      Array.from({ length: atOnce }, async (_, worker) => {
        while (left-- > 0) await task(worker);
      }),
    ),
  );
  return (count / elapsed) * 1000;
}

async function timed(task: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await task();
  return performance.now() - start;
}

/** Starts a script of this folder in its own process. Returns the JSON of its first line. */
async function startBeside<T>(name: string, args: string[], cleanup: (() => Promise<unknown>)[]): Promise<T> {
  const script = fileURLToPath(new URL(name, import.meta.url));
  const child = spawn(process.execPath, [script, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  cleanup.push(async () => {
    child.kill();
    await once(child, 'exit');
  });
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  return JSON.parse(line) as T;
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

function round(value: number, digits = 1): number {
  return Number(value.toFixed(digits));
}

function say(line: string): void {
  if (!options.json) process.stderr.write(`${line}\n`);
}
