import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { INHERITED_ENV } from './inherited-env.ts';
import { killAtEnd } from './reaper.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

/** Runs a command of `everturn` until it ends by itself. */
export async function everturn(
  args: string[],
  env: Record<string, string> = {},
): Promise<{ code: number; stdout: string; stderr: string }> {
  const child = killAtEnd(spawn(process.execPath, [MAIN, ...args], { env: { ...INHERITED_ENV, ...env } }));
  const ended = once(child, 'close') as Promise<[number]>;
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
  return { code, stdout, stderr };
}
