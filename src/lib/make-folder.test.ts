import { chmod, mkdir, mkdtemp, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { StartupError } from './errors.ts';
import { makeFolder } from './make-folder.ts';

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-make-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

test('a folder is created with its parents, and may exist, also behind a link', async () => {
  const place = await temporaryFolder();
  const folder = path.join(place, 'a/b/c');
  await makeFolder(folder, 'FOLDER');
  await symlink(folder, path.join(place, 'link'));
  await makeFolder(path.join(place, 'link'), 'FOLDER');
  await makeFolder('/', 'FOLDER');
  expect((await stat(folder)).isDirectory()).toBe(true);
});

/** Root may write everywhere. */
const asUser = process.getuid?.() === 0 ? [] : ['closed'];

test.each(['file', 'file/inside', 'dangling', 'dangling/inside', 'loop', ...asUser])(
  'a place that cannot be a folder is named with its setting: %s',
  async (name) => {
    const place = await temporaryFolder();
    await writeFile(path.join(place, 'file'), '');
    await symlink('nowhere', path.join(place, 'dangling'));
    await symlink('loop', path.join(place, 'loop'));
    await mkdir(path.join(place, 'closed'));
    await chmod(path.join(place, 'closed'), 0o500);
    const made = makeFolder(path.join(place, name), 'FOLDER');
    await expect(made).rejects.toThrow(StartupError);
    await expect(made).rejects.toThrow(`FOLDER must be a folder that this user can create or write: ${place}/${name}`);
  },
);

// Node's recursive `mkdir` does not return there.
test.runIf(process.platform === 'linux')('a file system without new folders is reported', async () => {
  for (const folder of ['/proc/everturn', '/proc/everturn/inside', '/sys/everturn']) {
    await expect(makeFolder(folder, 'FOLDER')).rejects.toThrow(`FOLDER must be a folder`);
  }
});
