import path from 'node:path';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, stat } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { secondsText, type InstallOptions } from './install-options.ts';

const POLL_MS = 200;
const PROGRESS_MS = 10_000;

/**
 * A download that receives nothing for this long is cancelled. Where the internet cannot be reached, some networks refuse
 * a connection and others never respond; the next way to install the CLI takes seconds.
 */
const SILENCE_MS = 10_000;

/** Downloads the CLI with Temporal's SDK and returns its file. The SDK checks the server's certificate, and no digest. */
export async function downloadBySdk({ folder, env, log }: InstallOptions): Promise<string> {
  log.info(
    `connecting for at most ${secondsText(SILENCE_MS)} to download Temporal with its SDK: TLS alone vouches for the ` +
      'program, since no digest is checked (EVERTURN_DOWNLOAD_TEMPORAL=false prevents it)',
  );
  const script = fileURLToPath(new URL('download-cli.ts', import.meta.url));
  const child = spawn(process.execPath, [script, folder], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  const output: string[] = [];
  createInterface({ input: child.stderr }).on('line', (line) => output.push(line));
  const closed = once(child, 'close').then(() => true);
  const startedAt = Date.now();
  let reportedAt = startedAt;
  let grownAt = startedAt;
  // Before the download's server has responded there is no file.
  let size = -1;
  try {
    for (let ended = false; ;) {
      // A file has the suffix `.downloading` until it is complete.
      const names = await readdir(folder);
      const program = names.find((name) => !name.endsWith('.downloading'));
      if (program) return path.join(folder, program);
      if (ended) throw new Error(output.findLast((line) => line.trim()) ?? 'the SDK printed no reason');
      const sizes = await Promise.all(names.map((name) => sizeOf(path.join(folder, name))));
      const now = Date.now();
      const grown = names.length > 0 ? sizes.reduce((sum, part) => sum + part, 0) : -1;
      if (grown > size) [size, grownAt] = [grown, now];
      if (now - grownAt > SILENCE_MS) throw new Error(`nothing was received for ${secondsText(SILENCE_MS)}`);
      if (now - reportedAt >= PROGRESS_MS) {
        reportedAt = now;
        log.info(
          `downloading Temporal: ${(Math.max(size, 0) / 1e6).toFixed(0)} MB after ${secondsText(now - startedAt)}`,
        );
      }
      ended = await Promise.race([closed, sleep(POLL_MS, false)]);
    }
  } finally {
    child.kill('SIGKILL');
  }
}

async function sizeOf(file: string): Promise<number> {
  try {
    return (await stat(file)).size;
  } catch {
    // The file was renamed in the meantime, because it is complete.
    return 0;
  }
}
