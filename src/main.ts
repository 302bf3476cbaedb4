#!/usr/bin/env node
import { inspect } from 'node:util';
import { Command, CommanderError } from 'commander';
import { addApiCommand } from './cli/api.ts';
import { addKeysCommand } from './cli/keys.ts';
import { addStartCommand } from './cli/start.ts';
import { addTurnCommand } from './cli/turn.ts';
import { addWorkerCommand } from './cli/worker.ts';
import { CatalogError } from './catalog/migrate.ts';
import { ConfigError } from './config.ts';
import { DataDirInUseError } from './lib/data-dir-lock.ts';
import { redact } from './lib/redact.ts';
import { ProvisionError } from './lib/errors.ts';

/** The command line. Gives the exit code. */
async function main(argv: string[]): Promise<number> {
  const program = new Command('everturn')
    .description('Runs AI agent conversations as durable Temporal workflows.')
    .addHelpText('after', '\nSettings come from the environment: see docs/configuration.md.')
    .showHelpAfterError()
    .exitOverride();
  addStartCommand(program);
  addApiCommand(program);
  addWorkerCommand(program);
  addKeysCommand(program);
  addTurnCommand(program);
  try {
    await program.parseAsync(argv, { from: 'user' });
    return 0;
  } catch (error) {
    // It has printed what is wrong, or the help that was asked for.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    const message = isForThePerson(error) ? error.message : inspect(error);
    process.stderr.write(redact(`everturn: ${message}\n`));
    return 1;
  }
}

/** Errors whose message says what to do; a stack trace would only hide it. */
function isForThePerson(error: unknown): error is Error {
  return [ConfigError, ProvisionError, CatalogError, DataDirInUseError].some((type) => error instanceof type);
}

// Temporal's runtime would keep a process alive that has failed to start.
process.exit(await main(process.argv.slice(2)));
