import type { Command } from 'commander';
import { loadConfig } from '../config.ts';
import { createLogger } from '../logger.ts';
import { startServer, type RunningServer } from '../server.ts';
import { keysLine } from './keys-line.ts';
import { installTemporalRuntime } from '../telemetry/temporal-runtime.ts';
import { untilStopped } from './until-stopped.ts';

/** `everturn start` */
export function addStartCommand(program: Command): void {
  program.command('start').description('Temporal, the worker and the API in one process').action(start);
}

async function start(): Promise<void> {
  const config = loadConfig();
  const log = createLogger(config);
  await installTemporalRuntime(log);
  const server = await startServer(config, log);
  process.stdout.write(greeting(server));
  await untilStopped(server);
}

function greeting({ url, model, names }: RunningServer): string {
  const header = names ? ' -H "authorization: Bearer $KEY"' : '';
  return `Everturn listens on ${url}
  key    ${keysLine(names)}
  model  ${model}
  try    S=$(curl -s${header} ${url}/v1/agents/sessions -d '{"agent_name":"demo"}' | grep -o 'ses_[0-9a-z]*' | head -1)
         curl -N${header} ${url}/v1/agents/sessions/$S/turns -d '{"input":[{"type":"user.message","content":"show my notes"}]}'
`;
}
