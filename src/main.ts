#!/usr/bin/env node
import { ConfigError, loadConfig, type Config } from './config.ts';
import { DataDirInUseError } from './data-dir-lock.ts';
import { createLogger, installTemporalLogger } from './logger.ts';
import { startServer, type RunningServer } from './server.ts';
import { ProvisionError } from './temporal/provision-error.ts';

const USAGE = `usage: everturn start

  start   Temporal, the worker and the API in one process

Settings come from the environment; the README has the table.
`;

/** The command line. */
async function main([command, ...rest]: string[]): Promise<number> {
  if (command !== 'start' || rest.length > 0) {
    process.stderr.write(USAGE);
    return 2;
  }
  try {
    const config = loadConfig();
    const log = createLogger(config);
    installTemporalLogger(log);
    const server = await startServer(config, log);
    process.stdout.write(greeting(config, server));
    return await untilStopped(server);
  } catch (error) {
    if (!isForThePerson(error)) throw error;
    process.stderr.write(`everturn: ${error.message}\n`);
    return 1;
  }
}

/** Errors whose message says what to do; a stack trace would only hide it. */
function isForThePerson(error: unknown): error is Error {
  return error instanceof ConfigError || error instanceof ProvisionError || error instanceof DataDirInUseError;
}

async function untilStopped(server: RunningServer): Promise<number> {
  const signal = new Promise<void>((resolve) => {
    for (const name of ['SIGINT', 'SIGTERM'] as const) {
      process.once(name, () => {
        // Who asks twice does not want to wait; nothing is lost by it.
        process.once(name, () => process.exit(130));
        resolve();
      });
    }
  });
  try {
    await Promise.race([signal, server.finished]);
  } finally {
    await server.stop();
  }
  return 0;
}

function greeting({ apiKeys }: Config, { url, model }: RunningServer): string {
  const names = apiKeys.map(({ subject }) => subject.subjectSlug).join(', ');
  const header = names ? ' -H "authorization: Bearer $KEY"' : '';
  return `Everturn listens on ${url}
  key    ${names ? `needed; there are keys for ${names}` : 'none needed: only this machine can connect'}
  model  ${model}
  try    S=$(curl -s${header} ${url}/v1/agents/sessions -d '{"agent_name":"demo"}' | grep -o 'ses_[0-9a-z]*' | head -1)
         curl -N${header} ${url}/v1/agents/sessions/$S/turns -d '{"input":[{"type":"user.message","content":"show my notes"}]}'
`;
}

// Temporal's runtime would keep a process alive that has failed to start.
process.exit(await main(process.argv.slice(2)));
