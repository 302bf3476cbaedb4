import path from 'node:path';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Logger } from 'pino';
import { goInstall } from '../../src/temporal-server/build-by-go.ts';
import { isExecutable, onPath } from '../../src/lib/on-path.ts';
import { installPrograms } from '../../src/temporal-server/program-cache.ts';
import { ProvisionError } from '../../src/lib/errors.ts';

const run = promisify(execFile);

/** The Dockerfile has the same version. */
export const TEMPORAL_VERSION = '1.29.1';

const MODULE = 'go.temporal.io/server';

export interface TemporalPrograms {
  server: string;
  /** Creates and updates the schemas. */
  sqlTool: string;
}

/**
 * Finds Temporal's server and its schema tool in the cache's folder `bin`. Missing programs are built with Go, which
 * takes two minutes, and run once as a check.
 *
 * @throws ProvisionError that names the remedy
 */
export async function temporalPrograms({
  cacheDir,
  env,
  log,
}: {
  cacheDir: string;
  env: NodeJS.ProcessEnv;
  log: Logger;
}): Promise<TemporalPrograms> {
  const binDir = path.resolve(cacheDir, 'bin');
  const names = { server: `temporal-server-${TEMPORAL_VERSION}`, sqlTool: `temporal-sql-tool-${TEMPORAL_VERSION}` };
  const programs = { server: path.join(binDir, names.server), sqlTool: path.join(binDir, names.sqlTool) };
  const present = await Promise.all(Object.values(programs).map(isExecutable));
  if (present.every(Boolean)) return programs;
  const [go] = await onPath('go', env);
  if (!go) {
    throw new ProvisionError(
      `Temporal ${TEMPORAL_VERSION} is not in ${binDir}, and Go is missing to build it: https://go.dev/dl`,
    );
  }
  await installPrograms(binDir, async (folder) => {
    const packages = ['cmd/server', 'cmd/tools/sql'].map((name) => `${MODULE}/${name}@v${TEMPORAL_VERSION}`);
    await goInstall({ go, folder, env, log, packages });
    const built = { [names.server]: path.join(folder, 'server'), [names.sqlTool]: path.join(folder, 'sql') };
    for (const file of Object.values(built)) await run(file, ['--version']);
    return built;
  });
  return programs;
}
