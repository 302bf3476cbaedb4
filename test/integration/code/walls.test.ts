import { mkdtemp, rm, symlink } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { probeWalls } from '../../../src/features/code/kernel/probe-walls.ts';
import { NoWall } from '../../../src/features/code/kernel/wall.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { openSandbox, wallOf } from '../../support/kernels.ts';

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

afterEach(() => vi.unstubAllEnvs());

describe('probeWalls', () => {
  it('gives the strongest wall that holds', async () => {
    expect(await probeWalls(await kernelPython(), 'auto')).toMatchObject({ isolation: 'sandbox', hasOwnUser: true });
  });

  it('gives a weaker wall where bubblewrap is missing, unless that was asked for', async () => {
    vi.stubEnv('PATH', '/nowhere');
    const python = await kernelPython();
    expect(await probeWalls(python, 'auto')).toMatchObject({ isolation: 'confined', hasOwnUser: true });
    await expect(probeWalls(python, 'bwrap')).rejects.toThrow(
      /^no wall .*sandbox: .*bwrap: No such file.* Install bubblewrap/,
    );
  });

  it('says what bubblewrap says', async () => {
    const folder = await mkdtemp(path.join(os.tmpdir(), 'everturn-no-bwrap-'));
    await symlink('/bin/cat', path.join(folder, 'bwrap'));
    vi.stubEnv('PATH', folder);
    await expect(probeWalls(await kernelPython(), 'bwrap')).rejects.toThrow(/unrecognized option.*exit code 1/s);
    await rm(folder, { recursive: true });
  });

  it('gives no wall only if that is asked for', async () => {
    expect(await probeWalls(await kernelPython(), 'none')).toMatchObject({ isolation: 'none' });
  });

  it.each([
    ['is missing', '/nowhere/python', 'ENOENT'],
    ['has no IPython', '/usr/bin/python3', "No module named 'IPython'"],
  ])('rejects an interpreter that %s', async (_, python, problem) => {
    await expect(probeWalls(python, 'auto')).rejects.toThrow(NoWall);
    await expect(probeWalls(python, 'none')).rejects.toThrow(problem);
  });
});

it('a sandbox needs its own user where the kernel host is root', async () => {
  const sandbox = await openSandbox(await wallOf('sandbox'));
  const { Kernel } = await import('../../../src/features/code/kernel/kernel.ts');
  const limits = { memoryBytes: 1, cpus: 1, processes: 1, outputBytes: 1 };
  const options = { wall: await wallOf('sandbox'), folders: sandbox.folders, env: {}, limits };
  await expect(Kernel.start(options)).rejects.toThrow('give its uid');
  await sandbox.remove();
});
