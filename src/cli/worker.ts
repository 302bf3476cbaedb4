import type { Command } from 'commander';
import { startWorkerApart } from '../server/standalone.ts';
import { beginProcess, untilStopped } from './process.ts';

/** `everturn worker` */
export function addWorkerCommand(program: Command): void {
  program
    .command('worker')
    .description('a worker alone, beside others and APIs')
    .action(async () => {
      const begun = await beginProcess('worker');
      const { config, tracing } = begun;
      const worker = await startWorkerApart(begun);
      const health = worker.healthUrl ?? 'not served (EVERTURN_WORKER_PORT is not set)';
      process.stdout.write(
        `Everturn's worker polls the task queue ${config.temporal.taskQueue}\n  model  ${worker.model}\n  health ${health}\n`,
      );
      await untilStopped(worker);
      await tracing?.stop();
    });
}
