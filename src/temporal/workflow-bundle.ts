import { createHash, randomUUID } from 'node:crypto';
import { readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundleWorkflowCode, DefaultLogger } from '@temporalio/worker';
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
 * Bundles the workflow code for the worker's sandbox. Bundling takes a second and 130 MB, so the result is cached in
 * `cacheDir` under a hash of its sources. With encryption the bundle contains the failure converter that moves error
 * messages to the attributes that the codec, which runs outside of the sandbox, encrypts. Workers that have a version
 * need a bundle that says which workflows stay with it.
 */
export async function workflowBundle(
  cacheDir: string,
  { encodesFailures = false, isVersioned = false } = {},
): Promise<{ code: string }> {
  const folder = path.join(cacheDir, 'workflows');
  const variant = `${encodesFailures ? '-encodes-failures' : ''}${isVersioned ? '-versioned' : ''}`;
  const file = path.join(folder, `${await sourceHash()}${variant}.js`);
  const cached = await readFile(file, 'utf8').catch(() => undefined);
  if (cached !== undefined) return { code: cached };
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
  await makeFolder(folder, 'XDG_CACHE_HOME');
  const temporary = path.join(folder, `.${randomUUID()}`);
  await writeFile(temporary, code);
  await rename(temporary, file);
  return { code };
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
