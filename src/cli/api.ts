import type { Command } from 'commander';
import { startApiApart } from '../server/standalone.ts';
import { keysLine, beginProcess, untilStopped } from './process.ts';

/** `everturn api` */
export function addApiCommand(program: Command): void {
  program
    .command('api')
    .description('the API alone, beside workers and other APIs')
    .action(async () => {
      const begun = await beginProcess('api');
      const { tracing } = begun;
      const api = await startApiApart(begun);
      const { url, names, model } = api;
      process.stdout.write(`Everturn's API listens on ${url}\n  key    ${keysLine(names)}\n  model  ${model}\n`);
      await untilStopped(api);
      await tracing?.stop();
    });
}
