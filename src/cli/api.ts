import type { Command } from 'commander';
import { describeKeys, runRole } from './process.ts';

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
