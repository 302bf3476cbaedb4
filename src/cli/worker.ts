import type { Command } from 'commander';
import { bootstrap, runUntilSignal } from './process.ts';

/** `everturn worker` */
export function addWorkerCommand(program: Command): void {
  program
    .command('worker')
    .description('run a worker only; APIs and other workers run in their own processes')
    .action(async () => {
      const bootstrapped = await bootstrap('worker');
      const { config, tracing } = bootstrapped;
      const { taskQueue, buildId } = config.temporal;
      const { startStandaloneWorker } = await import('../server/standalone.ts');
      const worker = await startStandaloneWorker(bootstrapped);
      const health = worker.healthUrl ?? 'not served (EVERTURN_WORKER_PORT is not set)';
      process.stdout.write(
        `Everturn's worker polls the task queue ${taskQueue}${buildId ? ` as version ${buildId}` : ''}\n  model  ${worker.model}\n  health ${health}\n`,
      );
      await runUntilSignal(worker);
      await tracing?.stop();
    });
}
