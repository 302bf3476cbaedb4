import type { Command } from 'commander';
import { startWorkerApart } from '../apart.ts';
import { loadConfig } from '../config.ts';
import { createLogger } from '../logger.ts';
import { installTemporalRuntime } from '../telemetry/temporal-runtime.ts';
import { untilStopped } from './until-stopped.ts';

/** `everturn worker` */
export function addWorkerCommand(program: Command): void {
  program
    .command('worker')
    .description('a worker alone, beside others and APIs')
    .action(async () => {
      const config = loadConfig(process.env, 'worker');
      const log = createLogger(config);
      await installTemporalRuntime(log);
      const worker = await startWorkerApart(config, log);
      const health = worker.healthUrl ?? 'not served (EVERTURN_WORKER_PORT is not set)';
      process.stdout.write(
        `Everturn's worker polls the task queue ${config.temporal.taskQueue}\n  model  ${worker.model}\n  health ${health}\n`,
      );
      await untilStopped(worker);
    });
}
