#!/usr/bin/env node
import { inspect } from 'node:util';
import { Command, CommanderError } from 'commander';
import { addAgentsCommand, addMcpCommand, addTurnCommand } from './cli/checks.ts';
import { addKeysCommand } from './cli/keys.ts';
import { addApiCommand, addKernelHostCommand, addStartCommand, addWorkerCommand } from './cli/roles.ts';
import { StartupError } from './lib/errors.ts';
import { redact } from './lib/redact.ts';
import packageJson from '../package.json' with { type: 'json' };

/** Runs a command line and returns the exit code. Commands load the server when they run: it takes a second to load. */
async function main(argv: string[]): Promise<number> {
  const program = new Command('everturn')
    .description('Runs AI agent conversations as durable Temporal workflows.')
    .version(`everturn ${packageJson.version}`, '--version', 'print the version')
    .addHelpText('after', '\nSettings come from the environment: see docs/configuration.md.')
    .showHelpAfterError()
    .exitOverride();
  addStartCommand(program);
  addApiCommand(program);
  addWorkerCommand(program);
  addKernelHostCommand(program);
  addKeysCommand(program);
  addAgentsCommand(program);
  addMcpCommand(program);
  addTurnCommand(program);
  try {
    await program.parseAsync(argv, { from: 'user' });
    return 0;
  } catch (error) {
    // Commander has already printed the problem, or the requested help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    const message = error instanceof StartupError ? error.message : inspect(error);
    process.stderr.write(redact(`everturn: ${message}\n`));
    return 1;
  }
}

// After a failed start Temporal's runtime would keep the process alive.
process.exit(await main(process.argv.slice(2)));
