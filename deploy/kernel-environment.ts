import { mkdtemp, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { pino } from 'pino';
import { KernelPython } from '../src/features/code/python/kernel-python.ts';

/**
 * Builds the Python environment that a kernel host builds at its first start, in a folder that does not exist:
 * `node deploy/kernel-environment.ts <folder>`. The image of kernel hosts has it, since it cannot be written.
 */
async function main(folder: string): Promise<void> {
  const cacheDir = await mkdtemp(`${folder}-`);
  const log = pino(pino.destination(2));
  const building = new KernelPython({ cacheDir, python: undefined, requirements: undefined, env: process.env, log });
  try {
    const { python } = await building.ready();
    await rename(path.dirname(path.dirname(python)), folder);
  } finally {
    await building.close();
    await rm(cacheDir, { recursive: true });
  }
}

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error('name the folder of the environment');
await main(path.resolve(folder));
