import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundleWorkflowCode, DefaultLogger } from '@temporalio/worker';
import { StartupError } from '../lib/errors.ts';
import { makeFolder } from '../lib/make-folder.ts';
import { FAILURE_CONVERTER_PATH } from './data-converter.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const WORKFLOWS = path.join(ROOT, 'workflows');

/**
 * All folders with source files of workflows; the import rules keep them there. Their modules have no state: workflows
 * share them.
 */
const SOURCES = [WORKFLOWS, path.join(ROOT, 'src', 'core')];

/**
 * The bundles of an image, which `make-workflow-bundles.ts` makes in its build. A folder of the program, since nothing
 * else of an image can be read by all of its processes and written by none.
 */
const MADE = path.join(ROOT, 'workflow-bundles');

interface BundleOptions {
  /**
   * With encryption the bundle contains the failure converter that moves error messages to the attributes that the codec,
   * which runs outside of the sandbox, encrypts.
   */
  encodesFailures?: boolean;
  /** Workers that have a version need a bundle that declares which workflows stay with it. */
  isVersioned?: boolean;
}

/**
 * The workflow code for the worker's sandbox, bundled. In an image it was bundled by the build: a worker there has no
 * compiler, whose native code needs a writable folder that allows programs. Elsewhere it is bundled at the first start,
 * which takes a second and 130 MB, and cached in `cacheDir` under a hash of its sources.
 *
 * @throws BundleError in an image whose bundles are of other sources
 */
export async function workflowBundle(cacheDir: string, options: BundleOptions = {}): Promise<{ code: string }> {
  const name = await bundleName(options);
  const made = await readMade(name);
  if (made !== undefined) return { code: made };
  const folder = path.join(cacheDir, 'workflows');
  const cached = await readFile(path.join(folder, name), 'utf8').catch(() => undefined);
  if (cached !== undefined) return { code: cached };
  const code = await bundle(options);
  await makeFolder(folder, 'XDG_CACHE_HOME');
  await store(folder, name, code);
  return { code };
}

/** Makes all bundles that workers of this program can need, in the folder in which they look first. */
export async function makeWorkflowBundles(): Promise<void> {
  await mkdir(MADE, { recursive: true });
  for (const encodesFailures of [false, true]) {
    for (const isVersioned of [false, true]) {
      const options = { encodesFailures, isVersioned };
      await store(MADE, await bundleName(options), await bundle(options));
    }
  }
}

/** The workflow bundles of an image do not fit its sources. */
class BundleError extends StartupError {}

/** Undefined where no bundles were made. */
async function readMade(name: string): Promise<string | undefined> {
  const names = await readdir(MADE).catch(() => undefined);
  if (!names) return undefined;
  if (names.includes(name)) return readFile(path.join(MADE, name), 'utf8');
  throw new BundleError(
    `${MADE} has no bundle of these workflow sources (${name}): build the image again; ` +
      'outside of an image, delete the folder',
  );
}

async function bundleName({ encodesFailures, isVersioned }: BundleOptions): Promise<string> {
  const variant = `${encodesFailures ? '-encodes-failures' : ''}${isVersioned ? '-versioned' : ''}`;
  return `${await sourceHash()}${variant}.js`;
}

async function bundle({ encodesFailures, isVersioned }: BundleOptions): Promise<string> {
  const workflowsPath = path.join(WORKFLOWS, isVersioned ? 'versioned.ts' : 'index.ts');
  const workflowInterceptorModules = ['refused-payloads.ts', 'context-propagation.ts'].map((name) =>
    path.join(WORKFLOWS, name),
  );
  const { code } = await bundleWorkflowCode({
    workflowsPath,
    workflowInterceptorModules,
    // All modules are evaluated once and shared, frozen, by all workflows of a worker. Evaluating them for each workflow
    // takes 1.3 ms, a quarter of the time that a turn spends in the thread of its workflows.
    preloadModules: [workflowsPath, ...workflowInterceptorModules],
    ...(encodesFailures && { failureConverterPath: FAILURE_CONVERTER_PATH }),
    logger: new DefaultLogger('ERROR'),
  });
  return code;
}

async function store(folder: string, name: string, code: string): Promise<void> {
  const temporary = path.join(folder, `.${randomUUID()}`);
  await writeFile(temporary, code);
  await rename(temporary, path.join(folder, name));
}

async function sourceHash(): Promise<string> {
  const hash = createHash('sha256');
  const require = createRequire(import.meta.url);
  hash.update(await readFile(require.resolve('@temporalio/worker/package.json')));
  hash.update(await readFile(fileURLToPath(import.meta.url)));
  for (const folder of SOURCES) {
    for (const name of (await readdir(folder)).toSorted()) {
      if (!name.endsWith('.ts') || name.endsWith('.test.ts')) continue;
      hash.update(`\0${name}\0`).update(await readFile(path.join(folder, name)));
    }
  }
  return hash.digest('hex');
}
