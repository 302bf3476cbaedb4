import { randomInt } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { CommandRunner, type CommandSandbox } from '../../src/features/code/commands/command-runner.ts';
import { Kernel, type ResourceLimits, type KernelOptions } from '../../src/features/code/kernel/kernel.ts';
import type { CallReply, KernelCall } from '../../src/features/code/kernel/kernel-calls.ts';
import { probeWalls } from '../../src/features/code/kernel/probe-walls.ts';
import { makeSandboxFolders, type SandboxFolders } from '../../src/features/code/kernel/sandbox-folders.ts';
import type { CellEnd, CellStop, CellRunOptions } from '../../src/features/code/kernel/running-cell.ts';
import type { Wall } from '../../src/features/code/kernel/wall.ts';
import { kernelPython } from './kernel-python.ts';

/** The walls of this machine: `sharing` is `confined` with the user of this process, which is root. */
export type WallName = 'sandbox' | 'confined' | 'sharing' | 'none';

export async function wallOf(name: WallName): Promise<Wall> {
  const python = await kernelPython();
  if (name === 'sharing') return { ...(await probeWalls(python, 'landlock')), hasOwnUser: false };
  return probeWalls(python, ({ sandbox: 'bwrap', confined: 'landlock', none: 'none' } as const)[name]);
}

interface StartOptions extends Partial<Pick<KernelOptions, 'env' | 'network' | 'hidden'>> {
  limits?: Partial<ResourceLimits>;
  /** The folder of its stored variables. */
  variables?: string | undefined;
}

export interface TestSandbox {
  root: string;
  folders: SandboxFolders;
  uid: number;
  wall: Wall;
  startKernel: (options?: StartOptions) => Promise<Kernel>;
  commandRunner: (limits?: Partial<CommandSandbox['limits']>) => CommandRunner;
  /** Stops its kernels and commands, and removes its folders. */
  remove: () => Promise<void>;
}

const LIMITS: ResourceLimits = { memoryBytes: 512 * 1024 * 1024, cpus: 1, processes: 64, outputBytes: 1024 * 1024 };

export async function openSandbox(wall: Wall): Promise<TestSandbox> {
  const root = await mkdtemp(path.join(os.tmpdir(), 'everturn-sandbox-'));
  const uid = randomInt(100_000, 1_000_000_000);
  const folders = await makeSandboxFolders(root, wall.hasOwnUser ? uid : undefined);
  const kernels: Kernel[] = [];
  const runners: CommandRunner[] = [];
  return {
    root,
    folders,
    uid,
    wall,
    startKernel: async ({ env = {}, network, limits, variables, hidden } = {}) => {
      const own = variables === undefined ? folders : { ...folders, variables };
      const bounds = { ...LIMITS, ...limits };
      const options: KernelOptions = { wall, folders: own, uid, env, network, hidden, limits: bounds };
      const kernel = await Kernel.start(options);
      kernels.push(kernel);
      return kernel;
    },
    commandRunner: (limits = {}) => {
      const runner = new CommandRunner({ wall, folders, uid, limits: { ...LIMITS, ...limits } });
      runners.push(runner);
      return runner;
    },
    remove: async () => {
      await Promise.all(runners.map((runner) => runner.stop()));
      await Promise.all(kernels.map((kernel) => kernel.stop('the test has ended')));
      await rm(root, { recursive: true, force: true });
    },
  };
}

/** The end of a cell that asks for no calls. */
export async function endOf(running: Promise<CellStop>): Promise<CellEnd> {
  const stop = await running;
  if (stop.status === 'calls') throw new Error(`the cell asks for ${JSON.stringify(stop.calls)}`);
  return stop.end;
}

/** An answer without the number of its call. */
export type Answer = CallReply extends infer One
  ? One extends { number: number }
    ? Omit<One, 'number'>
    : never
  : never;

let cells = 0;

/** Runs a cell to its end, and answers its calls at once. `batches`: those that it has asked for together. */
export async function runAnswering(
  kernel: Kernel,
  code: string,
  answer: (call: KernelCall) => Answer,
  options: Partial<CellRunOptions> = {},
): Promise<{ end: CellEnd; text: string; batches: KernelCall[][] }> {
  const batches: KernelCall[][] = [];
  const id = `answered-${cells++}`;
  let stop = await kernel.run({ id, code }, { timeoutMs: 30_000, onOutput: () => {}, ...options });
  while (stop.status === 'calls') {
    batches.push(stop.calls);
    const answers = stop.calls.map((call) => ({ ...answer(call), number: call.number }));
    stop = await kernel.resume(answers, { spentMs: 0 });
  }
  return { end: stop.end, text: stop.end.parts.map(({ text }) => text).join(''), batches };
}
