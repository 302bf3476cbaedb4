import { readdir, readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';

/** Workflows share the modules: what one of them writes there would change the others, and not be there in a replay. */
test('modules of workflows have no variables', async () => {
  const folders = ['workflows', 'src/core'];
  const files = (await Promise.all(folders.map(async (folder) => sourcesIn(folder)))).flat();
  expect(files).toContain('workflows/turn.ts');
  const variables = await Promise.all(
    files.map(async (file) => {
      const lines = (await readFile(file, 'utf8')).split('\n');
      // The exports of a module are frozen when it is shared; other objects are not, and maps and sets cannot be.
      const found = lines.filter((line) =>
        /^(export )?(let |var |const \w+(: .+)? = (new (Map|Set)\b.*\(\)|\[\]|\{\});?$)/.test(line),
      );
      return found.map((line) => `${file}: ${line}`);
    }),
  );
  expect(variables.flat()).toEqual([]);
});

async function sourcesIn(folder: string): Promise<string[]> {
  const names = await readdir(folder);
  return names.filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts')).map((name) => `${folder}/${name}`);
}
