import path from 'node:path';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, stat } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';

export interface InstallOptions {
  /** An empty folder that gets the program. */
  folder: string;
  env: NodeJS.ProcessEnv;
  log: Logger;
}

const CLI_PACKAGE = 'github.com/temporalio/cli/cmd/temporal@v1.5.1';

const POLL_MS = 200;
const PROGRESS_MS = 10_000;
/** A download that receives nothing for this long is cancelled. */
const STALLED_MS = 20_000;

/** Downloads the CLI with Temporal's SDK and returns its file. */
export async function downloadBySdk({ folder, env, log }: InstallOptions): Promise<string> {
  log.info('downloading Temporal with its SDK');
  const script = fileURLToPath(new URL('download-cli.ts', import.meta.url));
  const child = spawn(process.execPath, [script, folder], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  const output: string[] = [];
  createInterface({ input: child.stderr }).on('line', (line) => output.push(line));
  const closed = once(child, 'close').then(() => true);
  const startedAt = Date.now();
  let reportedAt = startedAt;
  let grownAt = startedAt;
  let size = 0;
  try {
    for (let ended = false; ;) {
      // A file has the suffix `.downloading` until it is complete.
      const names = await readdir(folder);
      const program = names.find((name) => !name.endsWith('.downloading'));
      if (program) return path.join(folder, program);
      if (ended) throw new Error(output.findLast((line) => line.trim()) ?? 'the SDK printed no reason');
      const sizes = await Promise.all(names.map((name) => sizeOf(path.join(folder, name))));
      const now = Date.now();
      const grown = sizes.reduce((sum, part) => sum + part, 0);
      if (grown > size) [size, grownAt] = [grown, now];
      if (now - grownAt > STALLED_MS) throw new Error(`nothing was received for ${seconds(STALLED_MS)}`);
      if (now - reportedAt >= PROGRESS_MS) {
        reportedAt = now;
        log.info(`downloading Temporal: ${(size / 1e6).toFixed(0)} MB after ${seconds(now - startedAt)}`);
      }
      ended = await Promise.race([closed, sleep(POLL_MS, false)]);
    }
  } finally {
    child.kill('SIGKILL');
  }
}

/** Builds the CLI from source with the Go toolchain and returns its file. */
export async function buildByGo({ go, folder, env, log }: InstallOptions & { go: string }): Promise<string> {
  await goInstall({ go, folder, env, log, packages: [CLI_PACKAGE] });
  return path.join(folder, 'temporal');
}

async function sizeOf(file: string): Promise<number> {
  try {
    return (await stat(file)).size;
  } catch {
    // The file was renamed in the meantime, because it is complete.
    return 0;
  }
}

const BUILD_MS = 20 * 60_000;

interface GoInstallOptions {
  /** The Go tool. */
  go: string;
  /** The folder that gets the programs. */
  folder: string;
  env: NodeJS.ProcessEnv;
  log: Logger;
  /** The packages with their versions, which must be equal. */
  packages: readonly string[];
}

/** Builds parts of Temporal from source with the Go toolchain. */
export async function goInstall({ go, folder, env, log, packages }: GoInstallOptions): Promise<void> {
  log.info(`building Temporal from source with ${go}; this takes about two minutes, once`);
  const child = spawn(go, ['install', '-v', ...packages], {
    env: { ...env, GOBIN: folder, CGO_ENABLED: '0' },
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: BUILD_MS,
  });
  const startedAt = Date.now();
  let modules = 0;
  let compiled = 0;
  let lastLine = '';
  createInterface({ input: child.stderr }).on('line', (line) => {
    if (line.startsWith('go: downloading ')) modules += 1;
    else if (/^[\w./~-]+$/.test(line)) compiled += 1;
    if (line.trim()) lastLine = line;
  });
  const progress = (): string =>
    `${seconds(Date.now() - startedAt)}, ${modules} modules fetched, ${compiled} packages compiled`;
  const reports = setInterval(() => log.info(`building Temporal: ${progress()}`), PROGRESS_MS);
  try {
    const failure = await new Promise<string | undefined>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code, signal) => resolve(code === 0 ? undefined : (signal ?? lastLine)));
    });
    if (failure !== undefined) throw new Error(`go install: ${failure || 'it printed no reason'}`);
  } finally {
    clearInterval(reports);
  }
  log.info(`built Temporal: ${progress()}`);
}

export function seconds(ms: number): string {
  return `${Math.round(ms / 1000)} s`;
}
