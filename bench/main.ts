import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { Client, Connection } from '@temporalio/client';
import { NativeConnection } from '@temporalio/worker';
import { loadConfig } from '../src/config.ts';
import { createLogger } from '../src/logger.ts';
import { installTemporalRuntime } from '../src/telemetry/temporal-runtime.ts';
import { startServer } from '../src/server.ts';
import { provisionTemporal } from '../src/temporal/provision.ts';
import { Floor } from './floor.ts';
import { startBareHandler } from './bare-handler.ts';
import { BenchClient, THINKING_AGENT } from './bench-client.ts';

/**
 * What Everturn costs, beside Temporal alone, in one run: the same Temporal server, the same machine, and a model and a
 * tool that answer at once. `--json` prints one line for programs.
 */

const ROUNDS = 3;
const STEPS = 100;
const isJson = process.argv.includes('--json');

interface Report {
  first_delta_ms: number;
  first_delta_behind_200_ms: number;
  bare_first_delta_behind_200_ms: number;
  step_ms: number;
  floor_step_ms: number;
  step_ratio: number;
  step_ratio_with_reader: number;
  bytes_per_step: Record<string, number>;
  turns_per_second: Record<string, number>;
  turns_ratio_16: number;
}

const dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-bench-'));
const cleanup: (() => Promise<unknown>)[] = [() => rm(dataDir, { recursive: true, force: true })];
try {
  const report = await measure();
  process.stdout.write(isJson ? `${JSON.stringify(report)}\n` : `${JSON.stringify(report, null, 2)}\n`);
} finally {
  for (const step of cleanup.toReversed()) await step();
}

async function measure(): Promise<Report> {
  const instant = await startInstantServers();
  const mcpFile = path.join(dataDir, 'mcp.json');
  await writeFile(mcpFile, JSON.stringify({ servers: { bench: { url: instant.mcp } } }));
  const config = loadConfig({
    ...process.env,
    EVERTURN_PORT: '0',
    EVERTURN_DATA: dataDir,
    EVERTURN_MCP_SERVERS: mcpFile,
    OPENAI_API_KEY: 'none',
    OPENAI_BASE_URL: instant.model,
    LOG_LEVEL: 'warn',
  });
  const log = createLogger(config);
  await installTemporalRuntime(log);
  const { cacheDir, temporal: settings } = config;
  const temporal = await provisionTemporal({ dataDir, cacheDir, log, ...settings });
  cleanup.push(() => temporal.stop());
  const everturn = await startServer(config, log, { temporal: { ...temporal, stop: () => Promise.resolve() } });
  cleanup.push(() => everturn.stop());

  const connection = await Connection.connect(temporal.connectionOptions);
  cleanup.push(() => connection.close());
  const native = await NativeConnection.connect(temporal.connectionOptions);
  cleanup.push(() => native.close());
  const temporalClient = new Client({ connection, namespace: temporal.namespace });
  const floor = await Floor.start(temporalClient, native, temporal.namespace);
  cleanup.push(() => floor.stop());

  const client = new BenchClient(everturn.url, temporalClient);
  await client.putAgents();
  const bare = await startBareHandler(instant.model, THINKING_AGENT);
  cleanup.push(() => bare.stop());
  return run(client, floor, bare.url);
}

async function run(client: BenchClient, floor: Floor, bareUrl: string): Promise<Report> {
  say('warming up');
  await floor.run(40);
  await client.timeOfSteps(20, { reader: false });
  await client.timeOfSteps(20, { reader: true });

  say('first delta');
  const first = await client.firstDeltas(40);

  say('first delta behind a model that thinks for 200 ms');
  const thinking = await client.firstDeltasBehind('thinking', bareUrl, 40);

  say(`${STEPS} steps, ${ROUNDS} times each`);
  const floors: number[] = [];
  const alone: number[] = [];
  const watched: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    floors.push((await timed(() => floor.run(2 * STEPS))) / STEPS);
    alone.push((await client.timeOfSteps(STEPS, { reader: false })) / STEPS);
    watched.push((await client.timeOfSteps(STEPS, { reader: true })) / STEPS);
  }

  say('history bytes');
  const bytes: Record<string, number> = {};
  for (const steps of [20, 100, 400]) bytes[steps] = Math.round((await client.bytesOfSteps(steps)) / steps);

  const turns: Record<string, number> = {};
  let floorOf16 = 0;
  for (const atOnce of [1, 16, 64]) {
    say(`turns per second, ${atOnce} at once`);
    const count = atOnce === 1 ? 60 : 320;
    // The activities of such a turn: callModel and archiveTurn.
    const floorRate = await rate(count, atOnce, () => floor.run(2));
    const sessions = await client.sessions(atOnce);
    turns[atOnce] = await rate(count, atOnce, (worker) => client.turn(sessions[worker] ?? ''));
    say(`  ${turns[atOnce]?.toFixed(1)}, bare workflows ${floorRate.toFixed(1)}`);
    if (atOnce === 16) floorOf16 = floorRate;
  }
  const floorStep = median(floors);
  return {
    first_delta_ms: round(median(first.onKnownSessions)),
    first_delta_behind_200_ms: round(median(thinking.durable)),
    bare_first_delta_behind_200_ms: round(median(thinking.bare)),
    step_ms: round(median(alone)),
    floor_step_ms: round(floorStep),
    step_ratio: round(median(alone) / floorStep, 3),
    step_ratio_with_reader: round(median(watched) / floorStep, 3),
    bytes_per_step: bytes,
    turns_per_second: Object.fromEntries(Object.entries(turns).map(([key, value]) => [key, round(value)])),
    turns_ratio_16: round((turns[16] ?? 0) / floorOf16, 3),
  };
}

/** How many a second, with `atOnce` under way all the time. */
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

async function startInstantServers(): Promise<{ model: string; mcp: string }> {
  const script = new URL('instant-servers.ts', import.meta.url).pathname;
  const child = spawn(process.execPath, [script], { stdio: ['ignore', 'pipe', 'inherit'] });
  cleanup.push(async () => {
    child.kill();
    await once(child, 'exit');
  });
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  return JSON.parse(line) as { model: string; mcp: string };
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
}

function round(value: number, digits = 1): number {
  return Number(value.toFixed(digits));
}

function say(line: string): void {
  if (!isJson) process.stderr.write(`${line}\n`);
}
