import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CommandRunner } from '../../../src/features/code/commands/command-runner.ts';
import { NEVER_ABORTED } from '../../../src/lib/abort.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { openSandbox, wallOf, type TestSandbox } from '../../support/kernels.ts';
import { COMMAND_ESCAPES, commandOf } from './command-escapes.ts';
import { openEscapeTarget, type EscapeTarget } from './escape-target.ts';

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

describe.each([
  { wall: 'sandbox', succeeds: false },
  { wall: 'confined', succeeds: false },
  { wall: 'sharing', succeeds: false },
  // What fails here, too, would prove nothing about the walls.
  { wall: 'none', succeeds: true },
] as const)('a command that attempts, with the wall $wall (succeeds: $succeeds)', ({ wall, succeeds }) => {
  let sandbox: TestSandbox;
  let target: EscapeTarget;
  let runner: CommandRunner;
  let before: unknown;
  let env: Record<string, string>;
  let cwd: string;

  beforeAll(async () => {
    const found = await wallOf(wall);
    sandbox = await openSandbox(found);
    target = await openEscapeTarget(found, sandbox);
    const targets = Object.entries(JSON.parse(target.forKernel) as Record<string, unknown>);
    env = Object.fromEntries(targets.map(([name, value]) => [`T_${name}`, String(value)]));
    cwd = found.isolation === 'sandbox' ? '/workspace' : sandbox.folders.workspace;
    runner = sandbox.commandRunner();
    before = await target.state();
  });

  afterAll(async () => {
    await sandbox.remove();
    await target.remove();
  });

  it.each(COMMAND_ESCAPES)('$id', async (escape) => {
    const bounds = { timeoutMs: 20_000, outputBytes: 65_536, signal: NEVER_ABORTED };
    const { output, exitCode } = await runner.run({ text: commandOf(escape), cwd, env, ...bounds });
    expect(output).toMatch(succeeds ? /^True$/m : /^False$/m);
    expect(exitCode).toBe(0);
  });

  it.skipIf(succeeds)('leaves everything outside as it was', async () => {
    expect(await target.state()).toEqual(before);
  });
});
