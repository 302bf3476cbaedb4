import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { z } from 'zod';
import { loadConfig } from '../../src/config.ts';
import type { WrongChange } from './wrong-changes.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** The projects that have a test. Tests on PostgreSQL are those of `integration` once more. */
function projectsOf(test: string): string[] {
  return test.startsWith('test/integration/') ? ['core', 'core-crashing', 'integration'] : ['unit', 'unit-mocked'];
}

const TIMEOUT_MS = 600_000;

const report = z.object({
  numPassedTests: z.int(),
  testResults: z.array(
    z.object({
      name: z.string(),
      status: z.string(),
      message: z.string(),
      assertionResults: z.array(z.object({ fullName: z.string(), status: z.string() })),
    }),
  ),
});

export interface TestResults {
  passed: number;
  /** The names of the tests that failed. */
  failed: string[];
  /** The message on files that failed without a failed test: they cannot be loaded. */
  broken: string[];
  /** The test files that passed. */
  passedFiles: Set<string>;
}

/** A copy of the files of this checkout, with the same packages and caches of its own. */
export class CheckoutCopy {
  readonly #folder: string;
  readonly #cache: string;

  private constructor(folder: string, cache: string) {
    this.#folder = folder;
    this.#cache = cache;
  }

  static async create(): Promise<CheckoutCopy> {
    const parent = await mkdtemp(path.join(tmpdir(), 'everturn-mutants-'));
    const [folder, cache] = [path.join(parent, 'checkout'), path.join(parent, 'cache')];
    const list = ['ls-files', '--cached', '--others', '--exclude-standard', '-z'];
    const { stdout } = await promisify(execFile)('git', list, { cwd: ROOT, maxBuffer: 100_000_000 });
    for (const file of stdout.split('\0').filter(Boolean)) {
      await mkdir(path.dirname(path.join(folder, file)), { recursive: true });
      await copyFile(path.join(ROOT, file), path.join(folder, file)).catch(ignoreDeleted);
    }
    // Vitest writes into the folder itself.
    await mkdir(path.join(folder, 'node_modules'));
    for (const name of await readdir(path.join(ROOT, 'node_modules'))) {
      if (name === '.vite') continue;
      await symlink(path.join(ROOT, 'node_modules', name), path.join(folder, 'node_modules', name));
    }
    // Each change of a workflow leaves a bundle there. Programs are installed once.
    await mkdir(path.join(cache, 'everturn'), { recursive: true });
    const { cacheDir } = loadConfig({ XDG_CACHE_HOME: process.env['XDG_CACHE_HOME'] });
    await mkdir(path.join(cacheDir, 'bin'), { recursive: true });
    await symlink(path.join(cacheDir, 'bin'), path.join(cache, 'everturn', 'bin'));
    return new CheckoutCopy(folder, cache);
  }

  /** Runs test files. Undefined if it was not known in time how they end. */
  async run(tests: readonly string[], ...more: string[]): Promise<TestResults | undefined> {
    const results = path.join(this.#cache, 'results.json');
    await rm(results, { force: true });
    const vitest = path.join(this.#folder, 'node_modules', 'vitest', 'vitest.mjs');
    const how = ['--reporter', 'json', '--outputFile', results, ...more];
    const env = { ...process.env, XDG_CACHE_HOME: this.#cache, NODE_COMPILE_CACHE: undefined };
    const projects = new Set(tests.flatMap(projectsOf));
    const which = [...projects].flatMap((name) => ['--project', name]);
    await promisify(execFile)(process.execPath, [vitest, 'run', ...which, ...how, ...tests], {
      cwd: this.#folder,
      env,
      maxBuffer: 100_000_000,
      timeout: TIMEOUT_MS,
    }).catch(() => undefined);
    const text = await readFile(results, 'utf8').catch(() => undefined);
    if (text === undefined) return undefined;
    const { numPassedTests: passed, testResults: files } = report.parse(JSON.parse(text));
    const failedIn = (file: (typeof files)[number]): string[] =>
      file.assertionResults.filter(({ status }) => status === 'failed').map(({ fullName }) => fullName);
    const broken = files.filter((file) => file.status === 'failed' && failedIn(file).length === 0);
    const passedFiles = files.filter(({ status }) => status === 'passed');
    return {
      passed,
      failed: files.flatMap(failedIn),
      broken: broken.map((file) => `${file.name}: ${file.message}`),
      passedFiles: new Set(passedFiles.map(({ name }) => path.relative(this.#folder, name))),
    };
  }

  /** Runs the test of a wrong change with the change. */
  async runWith({ file, text, becomes, test }: WrongChange): Promise<TestResults | undefined> {
    const changed = path.join(this.#folder, file);
    const before = await readFile(changed, 'utf8');
    await writeFile(
      changed,
      before.replace(text, () => becomes),
    );
    try {
      return await this.run([test], '--bail', '1');
    } finally {
      await writeFile(changed, before);
    }
  }

  async remove(): Promise<void> {
    await rm(path.dirname(this.#folder), { recursive: true, force: true });
  }
}

function ignoreDeleted(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}
