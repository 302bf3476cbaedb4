import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import packageJson from '../../package.json' with { type: 'json' };
import { HISTORIES, RECORD_INTO } from '../support/histories.ts';
import { ALL_NOISY } from './support/noise.ts';
import { FIGURES_FILE, summary } from './support/figures.ts';

interface Options {
  seed?: number;
  duration: number;
  long?: true;
  record?: true;
}

const command = new Command('test:faults')
  .description(
    'Kills, stalls and disconnects everything that Everturn depends on, and checks that nothing is lost or duplicated.',
  )
  .argument('[files...]', 'parts of the names of test files; default: all')
  .option('--seed <n>', 'of the random schedules; default: a new one, which is printed', wholeNumber)
  .option('--duration <seconds>', 'duration of the random schedule', wholeNumber, 60)
  .option('--record', 'record the histories of this release, which the workflow code of later releases must replay')
  .option('--long', 'include the long scenarios')
  .action(run);
await command.parseAsync();

async function run(files: string[], { seed, duration, long, record }: Options): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-figures-'));
  const figures = path.join(folder, 'figures.jsonl');
  const vitest = spawn('npx', ['vitest', 'run', '--project', 'faults', '--project', 'faults-nightly', ...files], {
    stdio: 'inherit',
    env: {
      ...process.env,
      [FIGURES_FILE]: figures,
      DURATION: String(duration),
      SEED: seed?.toString() ?? process.env['SEED'] ?? 'random',
      ...(long && { LONG: '1' }),
      [ALL_NOISY]: '1',
      ...(record && { [RECORD_INTO]: path.join(HISTORIES, packageJson.version) }),
    },
  });
  const [code] = (await once(vitest, 'exit')) as [number | null];
  process.stdout.write(`${await summary(figures)}\n`);
  await rm(folder, { recursive: true });
  process.exitCode = code ?? 1;
}

function wholeNumber(value: string): number {
  if (/^\d+$/.test(value)) return Number(value);
  throw new InvalidArgumentError('It must be a whole number.');
}
