import { cp, mkdir, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/**
 * Copies the sources of this checkout into a new folder, with `workflowsIndex` as their `workflows/index.ts`. Returns
 * the main file.
 */
export async function changedCheckout(folder: string, workflowsIndex: string): Promise<string> {
  await mkdir(folder);
  for (const name of ['activities', 'package.json', 'src', 'workflows']) {
    await cp(path.join(ROOT, name), path.join(folder, name), { recursive: true });
  }
  await symlink(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'));
  await writeFile(path.join(folder, 'workflows', 'index.ts'), workflowsIndex);
  return path.join(folder, 'src', 'main.ts');
}
