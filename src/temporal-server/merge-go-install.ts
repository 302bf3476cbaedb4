import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Logger } from 'pino';

const PROGRESS_MS = 10_000;
const BUILD_MS = 20 * 60_000;

interface GoInstallOptions {
  /** The Go tool. */
  go: string;
  /** Where the programs end up. */
  folder: string;
  env: NodeJS.ProcessEnv;
  log: Logger;
  /** With their versions, which must be the same if there are several. */
  packages: readonly string[];
}

/** Builds parts of Temporal from their source with the Go toolchain. */
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
    if (failure !== undefined) throw new Error(`go install: ${failure || 'it does not say why'}`);
  } finally {
    clearInterval(reports);
  }
  log.info(`built Temporal: ${progress()}`);
}

export function seconds(ms: number): string {
  return `${Math.round(ms / 1000)} s`;
}
