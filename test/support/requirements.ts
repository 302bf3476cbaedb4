import { execFileSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { TEMPORAL_VERSION } from '../../deploy/temporal/programs.ts';
import { loadConfig } from '../../src/config.ts';
import { IN_MOUNT_NAMESPACE } from './mount-namespace.ts';

/** A program that some tests need in addition to what `npm start` needs. */
export interface Requirement {
  name: string;
  /** Installs it on Debian. */
  install: string;
  isInstalled: () => boolean;
  /** The modules that use it. A test that imports one of them, directly or indirectly, needs the program. */
  usedBy: string[];
}

const BIN = path.join(loadConfig({ XDG_CACHE_HOME: process.env['XDG_CACHE_HOME'] }).cacheDir, 'bin');

export const REQUIREMENTS: Requirement[] = [
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
    isInstalled: () => runs('/usr/bin/chromium', '--version'),
    usedBy: ['test/support/browser.ts'],
  },
  {
    name: 'Python',
    install: 'apt-get install python3-venv',
    isInstalled: () => runs('python3', '-c', 'import ensurepip, venv'),
    usedBy: [
      'test/support/python.ts',
      'test/support/kernel-python.ts',
      'src/features/code/python/build-environment.test.ts',
    ],
  },
  {
    name: 'Docker Compose',
    install: 'apt-get install docker-compose',
    isInstalled: () => runs('docker', 'compose', 'version') || runs('docker-compose', 'version'),
    usedBy: ['test/support/compose.ts'],
  },
  {
    name: 'mount namespaces',
    install: 'apt-get install util-linux, as root or where users may make namespaces',
    isInstalled: () => runs(...IN_MOUNT_NAMESPACE, 'setpriv', '--version'),
    usedBy: ['test/support/mount-namespace.ts'],
  },
  {
    name: 'bubblewrap',
    install: 'apt-get install bubblewrap, as root',
    isInstalled: () => process.geteuid?.() === 0 && runs('bwrap', '--unshare-pid', '--ro-bind', '/', '/', 'true'),
    usedBy: ['test/support/kernels.ts'],
  },
  {
    name: 'containers',
    install:
      'apt-get install buildah crun debootstrap iproute2 tini, as root of a machine that allows network namespaces',
    isInstalled: () =>
      ['buildah', 'crun', 'debootstrap', 'tini'].every((program) => runs(program, '--version')) &&
      runs('unshare', '--mount', '--net', 'ip', 'link', 'add', 'bridge0', 'type', 'bridge'),
    usedBy: ['test/support/containers.ts'],
  },
  {
    name: 'Go',
    install: 'see https://go.dev/dl',
    isInstalled: () => isTemporalBuilt() || runs('go', 'version'),
    usedBy: ['test/nightly/temporal-on-postgres.test.ts', 'test/support/base-images.ts'],
  },
  {
    name: 'pip',
    install: 'apt-get install python3-pip',
    isInstalled: () => runs('python3', '-m', 'pip', '--version'),
    usedBy: ['test/integration/first-start.test.ts', 'test/support/pypi-program.ts'],
  },
  {
    name: 'OpenSSL',
    install: 'apt-get install openssl',
    isInstalled: () => runs('openssl', 'version'),
    usedBy: ['test/support/temporal-download.ts'],
  },
  {
    name: 'curl',
    install: 'apt-get install curl',
    isInstalled: () => runs('curl', '--version'),
    usedBy: ['test/integration/start.test.ts', 'test/support/guides/check-page.ts'],
  },
  {
    name: 'jq',
    install: 'apt-get install jq',
    isInstalled: () => runs('jq', '--version'),
    usedBy: ['test/support/guides/check-page.ts'],
  },
  {
    name: 'ps',
    install: 'apt-get install procps',
    isInstalled: () => runs('ps'),
    usedBy: [
      'test/support/guides/check-page.ts',
      'test/faults/slow-readers.test.ts',
      'test/faults/long.test.ts',
      'test/faults/support/held-memory.ts',
    ],
  },
];

let missingHere: Requirement[] | undefined;

/** The programs that are missing on this machine. Looked for once per process. */
function missingPrograms(): Requirement[] {
  missingHere ??= REQUIREMENTS.filter(({ isInstalled }) => !isInstalled());
  return missingHere;
}

interface SkipOptions {
  /** Modules that are loaded with each of the files. */
  setup?: string[];
  missing?: Requirement[];
  /** Under CI a missing program is a failure. */
  isCi?: boolean;
  report?: (line: string) => void;
}

const reported = new Set<string>();

/** A file may belong to two projects. */
function reportOnce(line: string): void {
  if (!reported.has(line)) process.stderr.write(`${line}\n`);
  reported.add(line);
}

/**
 * The test files that cannot run on this machine because a program is missing. Each is reported, by default on standard
 * error, with the command that installs what it needs.
 * @throws Error under CI, if there is one
 */
export function filesToSkip(
  testFiles: string[],
  { setup = [], missing = missingPrograms(), isCi = Boolean(process.env['CI']), report = reportOnce }: SkipOptions = {},
): string[] {
  const skipped = testFiles.flatMap((file) => {
    const needed = missing.filter(({ usedBy }) => [file, ...setup].some((module) => usesAny(module, usedBy)));
    return needed.length > 0 ? [{ file, needed }] : [];
  });
  const lines = skipped.map(({ file, needed }) => {
    const needs = needed.map(({ name, install }) => `${name}: ${install}`);
    return `skipped: ${file} (needs ${needs.join('; ')})`;
  });
  if (lines.length > 0 && isCi) throw new Error(`programs are missing:\n${lines.join('\n')}`);
  for (const line of lines) report(line);
  return skipped.map(({ file }) => file);
}

function usesAny(file: string, modules: string[]): boolean {
  const used = modulesOf(file);
  return modules.some((module) => used.has(module));
}

/** Imports of types are left out: nothing is loaded for them. */
const IMPORT = /^(?:import|export) (?!type )[^;]*?'(\.{1,2}\/[^']+\.ts)'/gm;
const direct = new Map<string, Set<string>>();

/** A file and the files of this repository that it imports, directly or indirectly. */
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

function runs(program = '', ...args: string[]): boolean {
  try {
    execFileSync(program, args, { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** Whether the server and its schema tool are in the cache, where a first run with Go has put them. */
function isTemporalBuilt(): boolean {
  return ['server', 'sql-tool'].every((name) => existsSync(path.join(BIN, `temporal-${name}-${TEMPORAL_VERSION}`)));
}
