import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

const VERSION_MS = 20_000;

/**
 * Servers before it were seen to lose the outcome of an Update whose workflow has closed (1.25), or have
 * Update-with-start turned off.
 */
const OLDEST_SERVER = { major: 1, minor: 27 };

/** Runs a program to see whether it is a Temporal CLI whose server is good enough; says why not if it isn't. */
export async function whyUnusable(file: string): Promise<string | undefined> {
  let output: string;
  try {
    ({ stdout: output } = await run(file, ['--version'], { timeout: VERSION_MS, killSignal: 'SIGKILL' }));
  } catch (error) {
    return `it does not run: ${error instanceof Error ? (error.message.trim().split('\n').at(-1) ?? '') : String(error)}`;
  }
  const [, version, major, minor] = /^temporal version .*\(Server ((\d+)\.(\d+)[^,)]*)/.exec(output) ?? [];
  if (!version) return `it is not the Temporal CLI: it says ${JSON.stringify(output.trim().slice(0, 80))}`;
  const enough =
    Number(major) > OLDEST_SERVER.major ||
    (Number(major) === OLDEST_SERVER.major && Number(minor) >= OLDEST_SERVER.minor);
  return enough
    ? undefined
    : `its server is ${version}, and ${OLDEST_SERVER.major}.${OLDEST_SERVER.minor} or newer is needed`;
}
