import type { Command } from 'commander';
import type { RunningAllInOne } from '../server/all-in-one.ts';
import { bootstrap, describeKeys, runUntilSignal } from './process.ts';

/** `everturn start` */
export function addStartCommand(program: Command): void {
  program.command('start').description('run Temporal, the worker and the API in one process').action(start);
}

async function start(): Promise<void> {
  const { config, log, tracing } = await bootstrap('start');
  const { startAllInOne } = await import('../server/all-in-one.ts');
  const server = await startAllInOne(config, log, { tracing });
  process.stdout.write(greeting(server));
  await runUntilSignal(server);
  await tracing?.stop();
}

function greeting({ url, model, names }: RunningAllInOne): string {
  const tries = names
    ? `curl -s -H "authorization: Bearer $KEY" ${url}/v1/agents`
    : `S=$(curl -s ${url}/v1/agents/sessions -d '{"agent_name":"demo"}' | grep -o 'ses_[0-9a-z]*' | head -1)
         curl -N ${url}/v1/agents/sessions/$S/turns -d '{"input":[{"type":"user.message","content":"show my notes"}]}'`;
  return `Everturn listens on ${url}
  key    ${describeKeys(names)}
  model  ${model}
  try    ${tries}
`;
}
