import type { Command } from 'commander';
import type { RunningAllInOne } from '../server/all-in-one.ts';
import { describeKeys, END_OLD_TURNS, runRole, type StartOptions } from './process.ts';

/** `everturn start` */
export function addStartCommand(program: Command): void {
  program
    .command('start')
    .description('run Temporal, the worker and the API in one process')
    .option(...END_OLD_TURNS)
    .action(start);
}

async function start({ endOldTurns }: StartOptions): Promise<void> {
  await runRole('start', {
    start: async ({ config, log, tracing, signal }) => {
      const { startAllInOne } = await import('../server/all-in-one.ts');
      return startAllInOne(config, log, { tracing, signal, endOldTurns });
    },
    greeting,
  });
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
