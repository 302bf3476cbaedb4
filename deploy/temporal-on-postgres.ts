#!/usr/bin/env node
import { Command, InvalidArgumentError } from 'commander';
import { runUntilSignal } from '../src/cli/process.ts';
import { ConfigError, loadConfig } from '../src/config.ts';
import { createLogger } from '../src/telemetry/logger.ts';
import { ProvisionError } from '../src/lib/errors.ts';
import { waitUntilReady } from '../src/temporal-server/wait-until-ready.ts';
import { startTemporalOnPostgres } from './temporal/start.ts';

interface Options {
  folder: string;
  host: string;
  port: number;
  namespace: string;
}

const CHECK_MS = 5_000;

/** Runs a Temporal server on PostgreSQL until a signal, for tests and for the production image. */
async function main(): Promise<void> {
  await new Command('temporal-on-postgres')
    .description("Runs Temporal's server on the PostgreSQL at TEMPORAL_POSTGRES_URL, whose user may create databases.")
    .option('--folder <folder>', "the folder of the server's configuration", '.temporal')
    .option('--host <address>', 'the address to listen on; every client that can reach it has full access', '127.0.0.1')
    .option('--port <port>', "the frontend's port; the server's other parts use ports near it", port, 7233)
    .option('--namespace <name>', 'created if it does not exist', 'everturn')
    .option('--check', 'only report, by the exit code, whether the server is running and has the namespace')
    .action(({ check, ...options }: Options & { check?: true }) => (check ? checkServer(options) : start(options)))
    .parseAsync();
}

async function start({ folder, host, port, namespace }: Options): Promise<void> {
  const postgresUrl = process.env['TEMPORAL_POSTGRES_URL'];
  if (!postgresUrl) {
    throw new ProvisionError('set TEMPORAL_POSTGRES_URL to postgresql://<user>:<password>@<host>:<port>/postgres');
  }
  const { cacheDir, logLevel, shutdownSeconds } = loadConfig();
  const log = createLogger({ logLevel });
  await runUntilSignal({
    log,
    shutdownSeconds,
    start: () => startTemporalOnPostgres({ folder, host, port, namespace, postgresUrl, cacheDir, log }),
    greeting: () => `Temporal listens on ${host}:${port}, with the namespace ${namespace}\n`,
  });
}

async function checkServer({ port, namespace }: Options): Promise<void> {
  const signal = AbortSignal.timeout(CHECK_MS);
  await waitUntilReady({ port, namespace, timeoutMs: CHECK_MS, signal }).catch((cause: unknown) => {
    throw new ProvisionError(`there is no server on port ${port} with a namespace ${namespace}`, { cause });
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
  if (!(error instanceof ProvisionError || error instanceof ConfigError)) throw error;
  process.stderr.write(`temporal-on-postgres: ${error.message}\n`);
  process.exitCode = 1;
}
