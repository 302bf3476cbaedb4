import type { Command } from 'commander';
import { startStandaloneApi } from '../server/standalone.ts';
import { describeKeys, bootstrap, runUntilSignal } from './process.ts';

/** `everturn api` */
export function addApiCommand(program: Command): void {
  program
    .command('api')
    .description('the API alone, beside workers and other APIs')
    .action(async () => {
      const begun = await bootstrap('api');
      const { tracing } = begun;
      const api = await startStandaloneApi(begun);
      const { url, names, model } = api;
      process.stdout.write(`Everturn's API listens on ${url}\n  key    ${describeKeys(names)}\n  model  ${model}\n`);
      await runUntilSignal(api);
      await tracing?.stop();
    });
}
