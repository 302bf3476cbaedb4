import { execFileSync } from 'node:child_process';
import {
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { link, mkdir, mkdtemp, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readAll, WorkspaceFiles } from './workspace-files.ts';

const isRoot = process.getuid?.() === 0;

/** A user that the machine does not have, as the sandboxes of a host that is root have. */
const SANDBOX = { uid: 61_234, gid: 61_234 };

let root: string;
let folder: string;
let files: WorkspaceFiles;
beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), 'everturn-workspace-'));
  folder = path.join(root, 'workspace');
  await mkdir(folder);
  await writeFile(path.join(root, 'secret'), 'secret');
  files = new WorkspaceFiles({ folder });
});
afterEach(() => rm(root, { recursive: true, force: true }));

const inside = (name: string) => path.join(folder, name);

function put(name: string, content: string): void {
  mkdirSync(path.dirname(inside(name)), { recursive: true });
  writeFileSync(inside(name), content);
}

const read = async (name: string, from = files) =>
  String(await from.read(name, (file) => readAll(file, name, 1_000_000)));

const problem = (operation: Promise<unknown>) =>
  operation.then(
    () => 'none',
    (error: unknown) => (error instanceof Error && 'code' in error ? `${String(error.code)}: ${error.message}` : error),
  );

test.each(['a/b.txt', './a//b.txt', '/workspace/a/b.txt', '//workspace/./a/b.txt', 'a/../a/b.txt', 'up/a/b.txt'])(
  'the path %s leads to a file',
  async (name) => {
    put('a/b.txt', 'text');
    await symlink('.', inside('up'));
    expect(await read(name)).toBe('text');
    expect(await read(path.join(folder, name.replace(/^\/+workspace/, '')))).toBe('text');
  },
);

test.each([
  { name: 'empty', given: '', reason: 'is empty' },
  { name: 'NUL', given: 'a\0b', reason: 'NUL' },
  { name: 'no Unicode', given: '\ud800', reason: 'not valid Unicode' },
  { name: 'the parent', given: '..', reason: 'leads out' },
  { name: 'a file beside', given: '../secret', reason: 'leads out' },
  { name: 'through a folder', given: 'a/../../secret', reason: 'leads out' },
  { name: 'absolute', given: '/workspace/../secret', reason: 'leads out' },
  { name: 'another folder', given: '/etc/passwd', reason: 'leads out' },
  { name: 'a name like it', given: '/workspace2/x', reason: 'leads out' },
  { name: 'the root', given: '/', reason: 'leads out' },
  { name: 'home', given: '~', reason: 'outside' },
  { name: 'below home', given: '~/x', reason: 'outside' },
  { name: 'a long name', given: 'n'.repeat(256), reason: 'a name of more than 255 bytes' },
  { name: 'a long name in bytes', given: 'ä'.repeat(128), reason: 'a name of more than 255 bytes' },
  { name: 'a long path', given: 'a/'.repeat(2_048) + 'b', reason: 'more than 4096 bytes' },
  { name: 'many steps', given: `a/b/c/d/e/f/${'../f/'.repeat(200)}`, reason: 'too many links and folders' },
])('a path is invalid: $name', async ({ given, reason }) => {
  mkdirSync(inside('a/b/c/d/e/f'), { recursive: true });
  for (const operation of [() => read(given), () => files.write(given, 'x')]) {
    expect(await problem(operation())).toMatch(new RegExp(`^invalid_path: .*${reason}`));
  }
});

test.each([
  ['a relative link', '../secret'],
  ['an absolute link', () => path.join(root, 'secret')],
  ['a link to the root of the machine', '/etc/passwd'],
  ['a link to the descriptors of this process', '/proc/self/environ'],
  ['a link that leaves and returns', '../workspace/a.txt'],
  ['a link that is not UTF-8', Buffer.from([0x2e, 0x2e, 0x2f, 0xff])],
])('%s does not lead out of the workspace', async (_, target) => {
  put('a.txt', 'text');
  const to = typeof target === 'function' ? target() : target;
  symlinkSync(to, inside('file'));
  symlinkSync(typeof to === 'string' ? path.dirname(to) : to, inside('folder'));
  symlinkSync('file', inside('chain'));
  const name = typeof to === 'string' ? path.basename(to) : 'x';
  for (const way of ['file', 'chain', `folder/${name}`]) {
    expect(await problem(read(way))).toMatch(/^invalid_path: .*leads out/);
    expect(await problem(files.write(way, 'changed'))).toMatch(/^invalid_path: .*leads out/);
  }
  expect(readFileSync(path.join(root, 'secret'), 'utf8')).toBe('secret');
  expect(readdirSync(root).toSorted()).toEqual(['secret', 'workspace']);
});

test('links that stay inside are followed, and stay', async () => {
  put('a/b.txt', 'text');
  await symlink('a', inside('folder'));
  await symlink('../a/b.txt', inside('a/relative'));
  await symlink('/workspace/a/b.txt', inside('a/absolute'));
  await symlink(inside('a/b.txt'), inside('a/host'));
  await symlink('new/file', inside('dangling'));
  for (const way of ['folder/b.txt', 'folder/relative', 'a/absolute', 'a/host']) expect(await read(way)).toBe('text');
  await files.write('folder/relative', 'changed');
  expect(lstatSync(inside('a/relative')).isSymbolicLink()).toBe(true);
  expect(await read('a/b.txt')).toBe('changed');
  await files.write('dangling', 'made');
  expect(await read('new/file')).toBe('made');
});

test('a loop of links, and a chain without end, are errors', async () => {
  await symlink('loop', inside('loop'));
  await symlink('deeper/x', inside('deeper'));
  expect(await problem(read('loop'))).toMatch(/^invalid_path: .*too many/);
  expect(await problem(read('deeper'))).toMatch(/^invalid_path: .*too many/);
});

test('only regular files are read and replaced, without waiting for a pipe', async () => {
  execFileSync('mkfifo', [inside('pipe')]);
  const server = createServer().listen(inside('socket'));
  await new Promise((resolve) => server.once('listening', resolve));
  if (isRoot) execFileSync('mknod', [inside('device'), 'c', '1', '5']);
  put('folder/x', '');
  try {
    for (const name of ['pipe', 'socket', ...(isRoot ? ['device'] : [])]) {
      expect(await problem(read(name))).toMatch(/^not_a_file: .* is not a regular file/);
      expect(await problem(files.write(name, 'x'))).toMatch(/^not_a_file: /);
    }
    expect(await problem(read('folder'))).toMatch(/^not_a_file: .* is a folder/);
    expect(await problem(read('folder/x/'))).toMatch(/^not_found: .*is not a folder/);
    expect(await problem(read('folder/'))).toMatch(/^not_a_file: .* is a folder/);
    expect(await problem(read('/workspace'))).toMatch(/^not_a_file: .* is a folder/);
    expect(await problem(files.write('folder', 'x'))).toMatch(/^not_a_file: .* is a folder/);
    expect(await problem(files.write('folder/x/y', 'x'))).toMatch(/^not_found: .*is not a folder/);
    expect(await problem(read('none'))).toMatch(/^not_found: "none" does not exist/);
  } finally {
    server.close();
  }
});

test('a folder that is exchanged for a link on the way leads nowhere else', async () => {
  put('d/secret', 'inside');
  put('kept/secret', 'inside');
  symlinkSync('..', inside('link'));
  const outcomes = async () => {
    const [got, written] = await Promise.all([
      read('d/secret').catch((error: unknown) => String(error)),
      problem(files.write('d/new/secret', 'written')),
    ]);
    expect(got).not.toBe('secret');
    expect(String(written)).not.toContain(root);
    return got;
  };
  const exchange = async (from: string, to: string) => {
    await rename(inside('d'), inside(from));
    let isRenamed = false;
    while (!isRenamed) {
      isRenamed = await rename(inside(to), inside('d')).then(
        () => true,
        () => false,
      );
      // Meanwhile the write may have made a folder of that name.
      if (!isRenamed) await rm(inside('d'), { recursive: true, force: true }).catch(() => undefined);
    }
  };
  for (let round = 0; round < 50; round += 1) {
    await Promise.all([outcomes(), exchange('e', 'link')]);
    expect(await outcomes()).toContain('leads out');
    await Promise.all([outcomes(), exchange('link', 'e')]);
    expect(await outcomes()).toBe('inside');
  }
  expect(readdirSync(root).toSorted()).toEqual(['secret', 'workspace']);
});

test('a file is replaced as a whole: another name of it, and an open descriptor, keep the old content', async () => {
  put('a', 'old');
  await link(inside('a'), path.join(root, 'other'));
  await files.write('a', 'new');
  expect(readFileSync(path.join(root, 'other'), 'utf8')).toBe('old');
  expect(await read('a')).toBe('new');
});

test('a write that fails changes nothing and leaves nothing', async () => {
  put('a', 'old');
  async function* failing(): AsyncGenerator<Uint8Array> {
    yield Buffer.from('new');
    throw new Error('cut off');
  }
  await expect(files.write('a', failing())).rejects.toThrow('cut off');
  expect(await read('a')).toBe('old');
  expect(readdirSync(folder)).toEqual(['a']);
});

test('a file that is executable stays so', async () => {
  put('run.sh', 'old');
  execFileSync('chmod', ['751', inside('run.sh')]);
  await files.write('run.sh', 'new');
  expect(statSync(inside('run.sh')).mode & 0o777).toBe(0o751);
});

test('updates of a file at the same time are all made', async () => {
  put('count', '');
  const updates = Array.from({ length: 20 }, () => files.update('count', 100, (content) => `${content.toString()}x`));
  await Promise.all(updates);
  expect(await read('count')).toBe('x'.repeat(20));
});

test('a file that is too large is not read', async () => {
  put('large', '');
  await truncate(inside('large'), 10 * 1024 ** 4);
  expect(await problem(read('large'))).toMatch(/^unsuitable: .*more than 1000000: use code/);
});

test.skipIf(!isRoot)('what root writes belongs to the user of the sandbox', async () => {
  chownSync(folder, SANDBOX.uid, SANDBOX.gid);
  const shared = new WorkspaceFiles({ folder, owner: SANDBOX });
  execFileSync('chmod', ['755', root]);
  await shared.write('a/b/c', 'text');
  await shared.makeFolder('d');
  await shared.makeLink('l', 'a/b/c');
  for (const name of ['a', 'a/b', 'a/b/c', 'd', 'l']) expect(lstatSync(inside(name))).toMatchObject(SANDBOX);
  const script = 'cd "$0" && echo more >> a/b/c && echo new > a/b/d && rm -r d && cat l';
  const asSandbox = ['--reuid=61234', '--regid=61234', '--clear-groups', 'sh', '-c', script, folder];
  expect(execFileSync('setpriv', asSandbox, { encoding: 'utf8' })).toBe('textmore\n');
});

test.skipIf(!isRoot)('a hard link to a file of another user is not read', async () => {
  await link(path.join(root, 'secret'), inside('hard'));
  const shared = new WorkspaceFiles({ folder, owner: SANDBOX });
  expect(await problem(read('hard', shared))).toMatch(/^invalid_path: .*of another user/);
  expect(await problem(shared.write('hard', 'x'))).toMatch(/^invalid_path: .*of another user/);
  await shared.write('own', 'text');
  await link(inside('own'), inside('second'));
  expect(await read('second', shared)).toBe('text');
});

test('an error of the operating system does not name folders of the host', async () => {
  await symlink('n'.repeat(300), inside('long'));
  const text = await problem(read('long'));
  expect(text).toMatch(/^failed: "long" cannot be read \(ENAMETOOLONG\)/);
  expect(text).not.toContain(root);
});

test('a new file is written beside one that has its path', async () => {
  expect(await files.writeNew('images/a.png', 'one')).toBe('images/a.png');
  const other = await files.writeNew('images/a.png', 'two');
  expect(other).toMatch(/^images\/a_[0-9a-f]{8}\.png$/);
  expect(await Promise.all([read('images/a.png'), read(other)])).toEqual(['one', 'two']);
  expect(readdirSync(inside('images'))).toHaveLength(2);
});

test('a new file does not replace the one to which a link leads', async () => {
  put('b', 'kept');
  symlinkSync('b', inside('a'));
  const other = await files.writeNew('a', 'new');
  expect([other, await read(other), await read('b')]).toEqual([expect.stringMatching(/^a_/), 'new', 'kept']);
});

test('where links lead is checked, before anything is read or made', async () => {
  put('a/b.txt', 'b');
  await symlink('a', inside('folder'));
  await symlink('b.txt', inside('a/link'));
  const seen: string[] = [];
  const checked = files.withLinks((linked) => {
    seen.push(linked);
    return linked.startsWith('a/new') ? Promise.reject(new Error('not there')) : Promise.resolve();
  });
  const read = (name: string) => checked.read(name, (file) => readAll(file, name, 10).then(String));
  expect(await read('a/b.txt')).toBe('b');
  expect(seen).toEqual([]);
  expect(await read('folder/b.txt')).toBe('b');
  expect(await read('a/link')).toBe('b');
  expect(seen).toEqual(['a/b.txt', 'a/b.txt']);
  await expect(checked.write('folder/new/sub/c', 'c')).rejects.toThrow('not there');
  expect(seen.at(-1)).toBe('a/new/sub/c');
  expect(readdirSync(inside('a')).toSorted()).toEqual(['b.txt', 'link']);
});
