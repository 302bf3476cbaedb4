import { cp, readFile, symlink } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Copies what `.dockerignore` lets into an image, apart from packages, which are linked. */
export async function copyImageFiles(folder: string): Promise<void> {
  const ignored = await readFile(path.join(ROOT, '.dockerignore'), 'utf8');
  for (const [, name = ''] of ignored.matchAll(/^!(.*)$/gm)) {
    const filter = (file: string) => !file.endsWith('.test.ts');
    await cp(path.join(ROOT, name), path.join(folder, name), { recursive: true, filter });
  }
  await symlink(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'));
}
