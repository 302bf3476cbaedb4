import type { Command } from 'commander';
import { describeKeys, bootstrap, runUntilSignal } from './process.ts';

/** `everturn api` */
export function addApiCommand(program: Command): void {
  program
    .command('api')
    .description('run the API only; workers and other APIs run in their own processes')
    .action(async () => {
      const bootstrapped = await bootstrap('api');
      const { tracing } = bootstrapped;
      const { startStandaloneApi } = await import('../server/standalone.ts');
      const api = await startStandaloneApi(bootstrapped);
      const { url, names, model } = api;
      process.stdout.write(`Everturn's API listens on ${url}\n  key    ${describeKeys(names)}\n  model  ${model}\n`);
      await runUntilSignal(api);
      await tracing?.stop();
    });
}
