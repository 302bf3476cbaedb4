import path from 'node:path';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { MissingProgramError, secondsText, type InstallOptions } from './install-options.ts';
import { onPath } from '../lib/on-path.ts';

/**
 * Its server is 1.29.1. `go install` cannot build 1.9: its go.mod replaces a module by a subfolder that the archives of
 * modules do not contain.
 */
const CLI_PACKAGE = 'github.com/temporalio/cli/cmd/temporal@v1.5.1';

const PROGRESS_MS = 10_000;
const BUILD_MS = 20 * 60_000;

/**
 * Builds the CLI from source with the Go toolchain and returns its file.
 *
 * @throws MissingProgramError without Go
 */
export async function buildByGo(options: InstallOptions): Promise<string> {
  const [go] = await onPath('go', options.env);
  if (!go) {
    throw new MissingProgramError(
      'go is not on PATH',
      'install Go, with which Everturn builds the CLI in two to five minutes: https://go.dev/dl',
    );
  }
  await goInstall({ ...options, go, packages: [CLI_PACKAGE] });
  return path.join(options.folder, 'temporal');
}

interface GoInstallOptions extends InstallOptions {
  /** The Go tool. */
  go: string;
  /** The packages with their versions, which must be equal. */
  packages: readonly string[];
}

/** Builds parts of Temporal from source with the Go toolchain, into `folder`. */
export async function goInstall({ go, folder, env, log, packages }: GoInstallOptions): Promise<void> {
  log.info(`building Temporal from source with ${go}; this takes two to five minutes, once`);
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
    `${secondsText(Date.now() - startedAt)}, ${modules} modules fetched, ${compiled} packages compiled`;
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
