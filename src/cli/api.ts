import type { Command } from 'commander';
import { startApiApart } from '../apart.ts';
import { loadConfig } from '../config.ts';
import { createLogger } from '../logger.ts';
import { keysLine } from './keys-line.ts';
import { installTemporalRuntime } from '../telemetry/temporal-runtime.ts';
import { untilStopped } from './until-stopped.ts';

/** `everturn api` */
export function addApiCommand(program: Command): void {
  program
    .command('api')
    .description('the API alone, beside workers and other APIs')
    .action(async () => {
      const config = loadConfig(process.env, 'api');
      const log = createLogger(config);
      await installTemporalRuntime(log);
      const api = await startApiApart(config, log);
      const { url, names, model } = api;
      process.stdout.write(`Everturn's API listens on ${url}\n  key    ${keysLine(names)}\n  model  ${model}\n`);
      await untilStopped(api);
    });
}
