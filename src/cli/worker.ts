import type { Command } from 'commander';
import { END_OLD_TURNS, runRole, type StartOptions } from './process.ts';

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
