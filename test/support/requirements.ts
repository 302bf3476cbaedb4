import { execFileSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';

/** A program that some tests need beside Node and Temporal. */
interface Requirement {
  name: string;
  /** Installs it on Debian. */
  install: string;
  isInstalled: () => boolean;
  /** The modules that use it: a test that imports one of them, directly or not, needs the program. */
  usedBy: string[];
}

const REQUIREMENTS: Requirement[] = [
  {
    name: 'PostgreSQL',
    install: 'apt-get install postgresql',
    isInstalled: () => runs('initdb', '--version') || globSync('/usr/lib/postgresql/*/bin/initdb').length > 0,
    usedBy: ['test/support/postgres.ts', 'test/support/postgres-setup.ts'],
  },
  {
    name: 'Redis',
    install: 'apt-get install redis-server',
    isInstalled: () => runs('redis-server', '--version'),
    usedBy: ['test/support/redis.ts'],
  },
  {
    name: 'Chromium',
    install: 'apt-get install chromium',
    isInstalled: () => runs('chromium', '--version'),
    usedBy: ['test/support/browser.ts'],
  },
  {
    name: 'Python',
    install: 'apt-get install python3-venv',
    isInstalled: () => runs('python3', '-c', 'import ensurepip, venv'),
    usedBy: ['test/support/python.ts'],
  },
  {
    name: 'Docker Compose',
    install: 'apt-get install docker-compose',
    isInstalled: () => runs('docker', 'compose', 'version') || runs('docker-compose', 'version'),
    usedBy: ['test/integration/compose.test.ts'],
  },
];

let missing: Requirement[] | undefined;

/**
 * The test files that cannot run on this machine because a program is missing. Each is named on standard error with the
 * command that installs what it needs.
 * @param setup modules that are loaded with each of the files
 * @throws Error under CI, where a missing program is a failure
 */
export function filesToSkip(testFiles: string[], setup: string[] = []): string[] {
  missing ??= REQUIREMENTS.filter(({ isInstalled }) => !isInstalled());
  const skipped = missing.map(({ name, install, usedBy }) => ({
    name,
    install,
    files: testFiles.filter((file) => [file, ...setup].some((module) => usesAny(module, usedBy))),
  }));
  const lines = skipped.flatMap(({ name, install, files }) =>
    files.map((file) => `skipped: ${file} (needs ${name}: ${install})`),
  );
  if (lines.length > 0 && process.env['CI']) throw new Error(`programs are missing:\n${lines.join('\n')}`);
  for (const line of lines) process.stderr.write(`${line}\n`);
  return skipped.flatMap(({ files }) => files);
}

function usesAny(file: string, modules: string[]): boolean {
  const used = modulesOf(file);
  return modules.some((module) => used.has(module));
}

const IMPORT = /from '(\.{1,2}\/[^']+\.ts)'/g;
const direct = new Map<string, Set<string>>();

/** A file and all that it imports from this repository, directly or not. */
function modulesOf(file: string, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  for (const imported of importsOf(file)) modulesOf(imported, seen);
  return seen;
}

function importsOf(file: string): Set<string> {
  const known = direct.get(file);
  if (known) return known;
  const matches = readFileSync(file, 'utf8').matchAll(IMPORT);
  const imported = new Set([...matches].map(([, to = '']) => path.join(path.dirname(file), to)));
  direct.set(file, imported);
  return imported;
}

function runs(program: string, ...args: string[]): boolean {
  try {
    execFileSync(program, args, { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}
