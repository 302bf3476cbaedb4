#!/usr/bin/env node
import { Command, InvalidArgumentError } from 'commander';
import { runUntilSignal } from '../src/cli/process.ts';
import { loadConfig } from '../src/config.ts';
import { createLogger } from '../src/telemetry/logger.ts';
import { ProvisionError, StartupError } from '../src/lib/errors.ts';
import { secretVariable } from '../src/lib/secret-variable.ts';
import { serveHealth } from './temporal/health.ts';
import { startTemporalOnPostgres } from './temporal/start.ts';

interface Options {
  folder: string;
  host: string;
  port: number;
  namespace: string;
  healthPort?: number;
}

/** Runs a Temporal server on PostgreSQL until a signal, for tests and for the production image. */
async function main(): Promise<void> {
  await new Command('temporal-on-postgres')
    .description("Runs Temporal's server on the PostgreSQL at TEMPORAL_POSTGRES_URL, whose user may create databases.")
    .option('--folder <folder>', "the folder of the server's configuration", '.temporal')
    .option('--host <address>', 'the address to listen on; every client that can reach it has full access', '127.0.0.1')
    .option('--port <port>', "the frontend's port; the server's other parts use ports near it", port, 7233)
    .option('--namespace <name>', 'created if it does not exist', 'everturn')
    .option('--health-port <port>', 'a port of 127.0.0.1 that answers 200 while the server has the namespace', port)
    .action(start)
    .parseAsync();
}

async function start({ folder, host, port, namespace, healthPort }: Options): Promise<void> {
  const postgresUrl = secretVariable(process.env, 'TEMPORAL_POSTGRES_URL');
  if (!postgresUrl) {
    throw new ProvisionError('set TEMPORAL_POSTGRES_URL to postgresql://<user>:<password>@<host>:<port>/postgres');
  }
  const { cacheDir, logLevel, shutdownSeconds } = loadConfig();
  const log = createLogger({ logLevel });
  await runUntilSignal({
    log,
    shutdownSeconds,
    start: async () => {
      await using cleanup = new AsyncDisposableStack();
      const temporal = await startTemporalOnPostgres({ folder, host, port, namespace, postgresUrl, cacheDir, log });
      cleanup.defer(() => temporal.stop());
      if (healthPort !== undefined) {
        const health = await serveHealth({ port: healthPort, address: temporal.address, namespace });
        cleanup.defer(() => health.stop());
      }
      const running = cleanup.move();
      return { finished: temporal.finished, stop: () => running.disposeAsync() };
    },
    greeting: () => `Temporal listens on ${host}:${port}, with the namespace ${namespace}
`,
  });
}

function port(value: string): number {
  if (/^\d+$/.test(value) && Number(value) > 1_024 && Number(value) < 32_700) return Number(value);
  throw new InvalidArgumentError("It must be a port from 1025 to 32699: Temporal's tables hold none above 32767.");
}

// Its folder has the password of PostgreSQL.
process.umask(0o077);
try {
  await main();
} catch (error) {
  if (!(error instanceof StartupError)) throw error;
  process.stderr.write(`temporal-on-postgres: ${error.message}\n`);
  process.exitCode = 1;
}
