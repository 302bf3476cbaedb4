import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { probeWalls } from '../../src/features/code/kernel/probe-walls.ts';
import { builtKernelPython } from '../../test/support/kernel-python.ts';
import { endOf, openSandbox, type TestSandbox } from '../../test/support/kernels.ts';
import { killAtEnd } from '../../test/support/reaper.ts';
import { startAllInOne } from '../all-in-one.ts';
import { startBench, type Bench } from '../bench.ts';
import { timeOfTurn } from '../bench-client.ts';
import { memoryMb } from '../everturn-process.ts';
import type { Setting } from '../setting.ts';
import { alternate, quantile, round, timed } from '../statistics.ts';

const run = promisify(execFile);

/** What kernels cost. Times are medians in milliseconds. */
interface KernelsReport {
  /** The isolation of kernels on this machine. */
  isolation: string;
  /** Until a kernel is ready for its first cell, beside `python -c 'import IPython'`. */
  start_ms: number;
  import_ms: number;
  start_ratio: number;
  /** Resident memory in megabytes of a kernel that has run one cell, with its launcher, beside a bare IPython. */
  memory_mb: number;
  ipython_memory_mb: number;
  memory_ratio: number;
  /** A step whose call runs a trivial cell, beside one whose tool has an effect. */
  cell_step_ms: number;
  effect_step_ms: number;
  cell_ratio: number;
  /** A turn whose cell calls a read-only tool many times, one after the other, beside the same calls in a bare loop. */
  calls_ms: number;
  bare_calls_ms: number;
  calls_ratio: number;
  /** 95 % of the plain turns take at most this long: without kernels, and while each kernel runs a cell. */
  turns_p95_ms: number;
  turns_p95_with_kernels_ms: number;
  turns_ratio: number;
}

const KERNELS = 20;
const CALLS = 200;
const TRIVIAL = '1';
const ENDLESS = 'while True: pass';
const CALLING = `from mcptools.bench.look import run, Params\nfor _ in range(${CALLS}): run(Params())`;

/** An interpreter as a kernel has it, which has run a trivial cell. */
const BARE_IPYTHON = `
import sys
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().run_cell("${TRIVIAL}")
print("ready", flush=True)
sys.stdin.read()`;

/** After the first cell: the memory of a kernel is measured each 50 ms, its processes are listed each 500 ms. */
const SETTLED_MS = 1_500;

/** Measures the kernels of this machine alone, then those of one process with the embedded Temporal. */
export async function measureKernels(setting: Setting): Promise<Partial<KernelsReport>> {
  const python = await builtKernelPython();
  const wall = await probeWalls(python, 'auto');
  const sandbox = await openSandbox(wall);
  setting.cleanup.push(() => sandbox.remove());
  const report: Partial<KernelsReport> = { isolation: wall.isolation };
  // Each result is reported at once: the last measurement overloads the machine, and may fail.
  const add = (result: Partial<KernelsReport>): void => {
    setting.say(`  ${JSON.stringify(result)}`);
    Object.assign(report, result);
  };
  add(await measureStart(setting, { python, sandbox }));
  add(await measureMemory(setting, { python, sandbox }));
  const env = { ...setting.env, EVERTURN_KERNELS: String(KERNELS + 1) };
  const bench = await startBench({ ...setting, env }, startAllInOne);
  await bench.client.putCodingAgent();
  add(await measureCells(bench, { steps: 50, rounds: 7 }));
  add(await measureCalls(bench, { rounds: 5 }));
  add(await measureTurns(bench, { perSecond: 10, seconds: 20, rounds: 3 }));
  return report;
}

interface Kernels {
  python: string;
  sandbox: TestSandbox;
}

async function measureStart(
  { say }: Setting,
  { python, sandbox }: Kernels,
): Promise<Pick<KernelsReport, 'start_ms' | 'import_ms' | 'start_ratio'>> {
  say('start of a kernel');
  const medians = await alternate(15, {
    bare: () => timed(() => run(python, ['-c', 'import IPython'])),
    kernel: async () => {
      const start = performance.now();
      const kernel = await sandbox.startKernel();
      const elapsed = performance.now() - start;
      await kernel.stop('it was measured');
      return elapsed;
    },
  });
  return {
    start_ms: round(medians.kernel),
    import_ms: round(medians.bare),
    start_ratio: round(medians.kernel / medians.bare, 2),
  };
}

async function measureMemory(
  { say }: Setting,
  { python, sandbox }: Kernels,
): Promise<Pick<KernelsReport, 'memory_mb' | 'ipython_memory_mb' | 'memory_ratio'>> {
  say('memory of a kernel');
  const medians = await alternate(3, {
    bare: () => memoryOfIpython(python),
    kernel: async () => {
      const kernel = await sandbox.startKernel();
      await endOf(kernel.run({ id: 'trivial', code: TRIVIAL }, { timeoutMs: 30_000, onOutput: () => undefined }));
      await sleep(SETTLED_MS);
      const bytes = kernel.memoryBytes;
      await kernel.stop('it was measured');
      return bytes / 1024 ** 2;
    },
  });
  return {
    memory_mb: round(medians.kernel),
    ipython_memory_mb: round(medians.bare),
    memory_ratio: round(medians.kernel / medians.bare, 2),
  };
}

async function memoryOfIpython(python: string): Promise<number> {
  const child = killAtEnd(spawn(python, ['-c', BARE_IPYTHON], { stdio: ['pipe', 'pipe', 'inherit'] }));
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  // The first line is what the cell displays.
  for (let line = await lines.next(); !line.done && line.value !== 'ready';) line = await lines.next();
  await sleep(SETTLED_MS);
  const megabytes = await memoryMb(child.pid ?? Number.NaN);
  const exited = once(child, 'exit');
  child.kill();
  await exited;
  return megabytes;
}

async function measureCells(
  { client, setting }: Bench,
  { steps, rounds }: { steps: number; rounds: number },
): Promise<Pick<KernelsReport, 'cell_step_ms' | 'effect_step_ms' | 'cell_ratio'>> {
  setting.say(`${steps} steps with a cell, beside a tool with an effect`);
  // Each session has its kernel and its servers before it is measured.
  const stepOf = async (agent: string, code?: string): Promise<number> => {
    const turnsUrl = client.turnsUrl(await client.session(agent));
    await timeOfTurn(turnsUrl, 1, code);
    return (await timeOfTurn(turnsUrl, steps, code)) / steps;
  };
  const medians = await alternate(rounds, {
    effect: () => stepOf('noting'),
    cell: () => stepOf('coding', TRIVIAL),
  });
  return {
    cell_step_ms: round(medians.cell),
    effect_step_ms: round(medians.effect),
    cell_ratio: round(medians.cell / medians.effect, 2),
  };
}

async function measureCalls(
  { client, setting }: Bench,
  { rounds }: { rounds: number },
): Promise<Pick<KernelsReport, 'calls_ms' | 'bare_calls_ms' | 'calls_ratio'>> {
  setting.say(`${CALLS} calls of a tool from one cell`);
  const mcp = new Client({ name: 'bare-loop', version: '1' });
  await mcp.connect(new StreamableHTTPClientTransport(new URL(setting.mcpUrl)));
  setting.cleanup.push(() => mcp.close());
  const turnsUrl = client.turnsUrl(await client.session('coding'));
  await timeOfTurn(turnsUrl, 1, TRIVIAL);
  const medians = await alternate(rounds, {
    bare: () =>
      timed(async () => {
        for (let i = 0; i < CALLS; i++) await mcp.callTool({ name: 'look', arguments: {} });
      }),
    cell: () => timeOfTurn(turnsUrl, 1, CALLING),
  });
  return {
    calls_ms: round(medians.cell),
    bare_calls_ms: round(medians.bare),
    calls_ratio: round(medians.cell / medians.bare, 2),
  };
}

async function measureTurns(
  bench: Bench,
  { perSecond, seconds, rounds }: { perSecond: number; seconds: number; rounds: number },
): Promise<Pick<KernelsReport, 'turns_p95_ms' | 'turns_p95_with_kernels_ms' | 'turns_ratio'>> {
  const { client, setting } = bench;
  setting.say(`${perSecond} plain turns a second, without kernels and while ${KERNELS} kernels run cells`);
  const plain = await warmSessions(bench, 'plain', 2 * perSecond);
  const coding = await warmSessions(bench, 'coding', KERNELS, TRIVIAL);
  const p95 = async (): Promise<number> =>
    quantile(await turnsAtRate(bench, plain, { count: perSecond * seconds, everyMs: 1000 / perSecond }), 0.95);
  const medians = await alternate(rounds, {
    alone: p95,
    beside: async () => {
      const running = await Promise.all(coding.map((sessionId) => client.startCode(sessionId, ENDLESS)));
      const result = await p95();
      await Promise.all(running.map(({ cancel }) => cancel()));
      return result;
    },
  });
  return {
    turns_p95_ms: round(medians.alone),
    turns_p95_with_kernels_ms: round(medians.beside),
    turns_ratio: round(medians.beside / medians.alone, 2),
  };
}

/** Sessions that have had a turn; with `code`, that have a kernel. */
async function warmSessions({ client }: Bench, agent: string, count: number, code?: string): Promise<string[]> {
  const sessions = await client.sessions(agent, count);
  for (const sessionId of sessions) {
    await timeOfTurn(client.turnsUrl(sessionId), code === undefined ? 0 : 1, code);
  }
  return sessions;
}

/** Begins a plain turn at fixed times, whether those before have ended or not. Returns how long each takes. */
async function turnsAtRate(
  { client }: Bench,
  sessions: string[],
  { count, everyMs }: { count: number; everyMs: number },
): Promise<number[]> {
  const free = [...sessions];
  const turn = async (): Promise<number> => {
    // A new turn would cancel a running turn of its session.
    const sessionId = free.shift() ?? (await client.session('plain'));
    const elapsed = await timeOfTurn(client.turnsUrl(sessionId), 0);
    free.push(sessionId);
    return elapsed;
  };
  const turns: Promise<number>[] = [];
  const start = performance.now();
  for (let i = 0; i < count; i++) {
    await sleep(Math.max(0, start + i * everyMs - performance.now()));
    turns.push(turn());
  }
  return Promise.all(turns);
}
