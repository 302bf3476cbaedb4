#!/usr/bin/env node
import { Command, InvalidArgumentError } from 'commander';
import { untilStopped } from '../src/cli/until-stopped.ts';
import { loadConfig } from '../src/config.ts';
import { createLogger } from '../src/logger.ts';
import { ProvisionError } from '../src/temporal/provision-error.ts';
import { startTemporalOnPostgres } from './temporal/start.ts';

/** Runs a Temporal server on PostgreSQL until it is told to stop: what the tests do, and the image for production. */
async function main(): Promise<void> {
  const program = new Command('temporal-on-postgres')
    .description("Runs Temporal's server on the PostgreSQL at TEMPORAL_POSTGRES_URL, whose user may create databases.")
    .option('--folder <folder>', "for the server's configuration", '.temporal')
    .option('--host <address>', 'to listen on; whoever reaches it can do everything', '127.0.0.1')
    .option('--port <port>', "of the frontend; the server's other parts take ports near it", port, 7233)
    .option('--namespace <name>', 'made if it is not there', 'everturn')
    .parse();
  const postgresUrl = process.env['TEMPORAL_POSTGRES_URL'];
  if (!postgresUrl)
    throw new ProvisionError('set TEMPORAL_POSTGRES_URL to postgresql://<user>:<password>@<host>:<port>/postgres');
  const { cacheDir, logLevel } = loadConfig();
  const log = createLogger({ logLevel });
  const options = program.opts<{ folder: string; host: string; port: number; namespace: string }>();
  const temporal = await startTemporalOnPostgres({ ...options, postgresUrl, cacheDir, log });
  process.stdout.write(`Temporal listens on ${options.host}:${options.port}, namespace ${temporal.namespace}\n`);
  await untilStopped(temporal);
}

function port(value: string): number {
  if (/^\d+$/.test(value) && Number(value) > 1_024 && Number(value) < 32_700) return Number(value);
  throw new InvalidArgumentError("It must be a port from 1025 to 32699: Temporal's tables hold none above 32767.");
}

try {
  await main();
} catch (error) {
  if (!(error instanceof ProvisionError)) throw error;
  process.stderr.write(`temporal-on-postgres: ${error.message}\n`);
  process.exitCode = 1;
}
