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

/** `everturn api` */
export function addApiCommand(program: Command): void {
  program
    .command('api')
    .description('run the API only; workers and other APIs run in their own processes')
    .action(async () => {
      await runRole('api', {
        start: async (bootstrapped) => {
          const { startStandaloneApi } = await import('../server/standalone-api.ts');
          return startStandaloneApi(bootstrapped);
        },
        greeting: ({ url, names, model }) =>
          `Everturn's API listens on ${url}\n  key    ${describeKeys(names)}\n  model  ${model}\n`,
      });
    });
}

/** `everturn kernel-host` */
export function addKernelHostCommand(program: Command): void {
  program
    .command('kernel-host')
    .description('run the code of agents; APIs and workers run in their own processes')
    .option('--identity <text>', 'of `everturn start` alone: what its host is known by')
    .action(async ({ identity }: { identity?: string }) => {
      await runRole('kernel-host', {
        start: async (bootstrapped) => {
          const { startKernelHost } = await import('../server/kernel-host.ts');
          return startKernelHost({ ...bootstrapped, identity });
        },
        greeting: ({ capacity, healthUrl }, { temporal: { taskQueue } }) => {
          const health = healthUrl ?? 'not served (EVERTURN_KERNEL_HOST_PORT is not set)';
          return `Everturn's kernel host serves the task queue ${taskQueue}\n  kernels ${capacity}\n  health  ${health}\n`;
        },
      });
    });
}

/** `everturn worker` */
export function addWorkerCommand(program: Command): void {
  program
    .command('worker')
    .description('run a worker only; APIs and other workers run in their own processes')
    .option(...END_OLD_TURNS)
    .action(async ({ endOldTurns }: StartOptions) => {
      await runRole('worker', {
        start: async (bootstrapped) => {
          const { startStandaloneWorker } = await import('../server/standalone-worker.ts');
          return startStandaloneWorker({ ...bootstrapped, endOldTurns });
        },
        greeting: ({ healthUrl, model }, { temporal: { taskQueue, buildId } }) => {
          const health = healthUrl ?? 'not served (EVERTURN_WORKER_PORT is not set)';
          const version = buildId ? ` as version ${buildId}` : '';
          return `Everturn's worker polls the task queue ${taskQueue}${version}\n  model  ${model}\n  health ${health}\n`;
        },
      });
    });
}
