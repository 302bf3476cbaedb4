import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Kernel } from '../../../src/features/code/kernel/kernel.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { endOf, openSandbox, wallOf, type TestSandbox } from '../../support/kernels.ts';
import { cellOf, ESCAPES, PREAMBLE, type Escape } from './escapes.ts';
import { openEscapeTarget, type EscapeTarget } from './escape-target.ts';

const TIMEOUT_MS = 20_000;

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

/** The output of an attempt. Its last line is whether it succeeded. */
async function attempt(kernel: Kernel, escape: Escape): Promise<string> {
  const running = kernel.run({ id: escape.id, code: cellOf(escape) }, { timeoutMs: TIMEOUT_MS, onOutput: () => {} });
  const end = await endOf(running);
  expect(end.exit, JSON.stringify(end)).toBe('ok');
  return end.parts.map(({ text }) => text).join('');
}

describe.each([
  { wall: 'sandbox', succeeds: false },
  { wall: 'confined', succeeds: false },
  { wall: 'sharing', succeeds: false },
  // What fails here, too, would prove nothing about the walls.
  { wall: 'none', succeeds: true },
] as const)('an attempt with the wall $wall (succeeds: $succeeds)', ({ wall, succeeds }) => {
  let sandbox: TestSandbox;
  let target: EscapeTarget;
  let kernel: Kernel;
  let before: unknown;

  beforeAll(async () => {
    const found = await wallOf(wall);
    sandbox = await openSandbox(found);
    target = await openEscapeTarget(found, sandbox);
    kernel = await sandbox.startKernel({ env: { TARGET: target.forKernel } });
    await kernel.run({ id: 'preamble', code: PREAMBLE }, { timeoutMs: TIMEOUT_MS, onOutput: () => {} });
    before = await target.state();
  });

  afterAll(async () => {
    await sandbox.remove();
    await target.remove();
  });

  it.each(ESCAPES)('$id', async (escape) => {
    expect(await attempt(kernel, escape)).toMatch(succeeds ? /^True$/m : /^False$/m);
  });

  it.skipIf(succeeds)('leaves everything outside as it was', async () => {
    expect(await target.state()).toEqual(before);
  });
});
