import { execFileSync } from 'node:child_process';
import { constants, lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, open, rename, rm, symlink, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fc } from '../../../../test/support/fast-check.ts';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { BlobsUnavailable, type BlobStore } from '../../../blobs/blob-store.ts';
import { FolderBlobStore } from '../../../blobs/folder-blob-store.ts';
import { sha256 } from '../../../lib/hash.ts';
import { readWorkspaceList, type WorkspaceList } from './workspace-list.ts';
import { WorkspaceState } from './workspace-state.ts';

const isRoot = process.getuid?.() === 0;
const SESSION = 'ses_1';
const LIMITS = { maxBytes: 1024 ** 3, maxFiles: 10_000 };

/** Later than every change of the test, so that each file counts as settled. */
const LATER = () => Date.now() + 60_000;

let root: string;
let folder: string;
/** The sizes of what was put, without the lists. */
let put: number[];
/** How many lists were put. */
let lists: number;
let blobs: BlobStore;
beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), 'everturn-state-'));
  folder = await newFolder('workspace');
  put = [];
  lists = 0;
  const store = new FolderBlobStore(path.join(root, 'blobs'));
  blobs = replacing(store, {
    put: (sessionId, bytes) => {
      if (Buffer.from(bytes).toString('latin1', 0, 2).startsWith('[')) lists += 1;
      else put.push(bytes.length);
      return store.put(sessionId, bytes);
    },
  });
});
// `rm` of Node.js fails for paths that are longer than the operating system takes.
afterEach(() => execFileSync('rm', ['-rf', root]));

/** The store with another `put`. */
function replacing(store: BlobStore, { put }: Pick<BlobStore, 'put'>): BlobStore {
  return {
    put,
    get: (...args) => store.get(...args),
    list: (sessionId) => store.list(sessionId),
    delete: (...args) => store.delete(...args),
    deleteAll: (sessionId) => store.deleteAll(sessionId),
    check: () => store.check(),
    close: () => store.close(),
  };
}

async function newFolder(name: string): Promise<string> {
  const made = path.join(root, name);
  await mkdir(made);
  return made;
}

function state(options: Partial<ConstructorParameters<typeof WorkspaceState>[0]> = {}): WorkspaceState {
  return new WorkspaceState({ folder, blobs, sessionId: SESSION, limits: LIMITS, now: LATER, ...options });
}

const entriesOf = (list: WorkspaceList) => readWorkspaceList({ blobs, sessionId: SESSION }, list);

async function write(name: string, content: string | Buffer, from = folder): Promise<string> {
  const file = path.join(from, name);
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, content);
  return file;
}

/** All that a folder contains; `readdirSync` itself follows links. */
function treeOf(from: string): object {
  const names = readdirSync(from).toSorted();
  return Object.fromEntries(
    names.map((name) => {
      const file = path.join(from, name);
      const stats = lstatSync(file);
      if (stats.isSymbolicLink()) return [name, readlinkSync(file)];
      if (stats.isDirectory()) return [name, treeOf(file)];
      const isExecutable = (stats.mode & 0o111) > 0;
      return [name, { content: sha256(readFileSync(file)), isExecutable, modifiedAt: Math.round(stats.mtimeMs) }];
    }),
  );
}

test('a workspace is restored with its folders, links, modes and times', async () => {
  await write('a.txt', 'text');
  await chmod(await write('bin/run', '#!/bin/sh'), 0o755);
  await write('empty', '');
  await write('Ä\n"\u0001.txt', 'odd');
  await mkdir(path.join(folder, 'd/e'), { recursive: true });
  await symlink('../a.txt', path.join(folder, 'd/inside'));
  await symlink('/etc/passwd', path.join(folder, 'd/outside'));
  await utimes(path.join(folder, 'a.txt'), new Date('2020-01-01'), new Date('2020-01-02T03:04:05.678Z'));
  const saved = await state().save(undefined);
  expect(saved).toEqual({ blob: expect.any(String), files: 4, bytes: 16, notices: [] });
  const other = await newFolder('other');
  await state({ folder: other }).restore(saved);
  expect(treeOf(other)).toEqual(treeOf(folder));
});

test('random trees are restored as they were, after any changes', async () => {
  const name = fc.constantFrom('a', 'b', 'ä b', '.c', '-d', 'E'.repeat(255));
  const place = fc.array(name, { minLength: 1, maxLength: 4 }).map((names) => names.join('/'));
  const node = fc.oneof(
    fc.record({
      kind: fc.constant('file'),
      content: fc.string({ maxLength: 100 }),
      mode: fc.constantFrom(0o644, 0o755),
    }),
    fc.record({ kind: fc.constant('folder') }),
    fc.record({ kind: fc.constant('link'), target: fc.constantFrom('a', '..', '../../x', '/etc', '/workspace/a') }),
    fc.record({ kind: fc.constant('removed') }),
  ) as fc.Arbitrary<{ kind: string; content: string; mode: number; target: string }>;
  const changes = fc.array(fc.tuple(place, node), { maxLength: 8 });
  let run = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(changes, { minLength: 1, maxLength: 3 }), async (rounds) => {
      run += 1;
      const from = await newFolder(`from-${run}`);
      const saving = state({ folder: from });
      let list: WorkspaceList | undefined;
      for (const round of rounds) {
        for (const [name, { kind, content, mode, target }] of round)
          await apply(path.join(from, name), { kind, content, mode, target });
        list = await saving.save(list);
      }
      const to = await newFolder(`to-${run}`);
      const restored = await state({ folder: to }).restore(list as WorkspaceList);
      expect(treeOf(to)).toEqual(treeOf(from));
      expect(restored).toEqual({ ...list, blob: expect.any(String) });
    }),
    { numRuns: 30 },
  );
});

/** Changes what can be changed: a folder cannot be made where a file is. */
async function apply(
  file: string,
  { kind, content, mode, target }: { kind: string; content: string; mode: number; target: string },
): Promise<void> {
  // Not through the links of the tree.
  const parents = path.relative(root, path.dirname(file)).split('/');
  for (let at = root; parents.length > 0;) {
    at = path.join(at, parents.shift() ?? '');
    const stats = lstatSync(at, { throwIfNoEntry: false });
    if (stats && !stats.isDirectory()) return;
  }
  await rm(file, { recursive: true, force: true });
  if (kind === 'removed') return;
  await mkdir(kind === 'folder' ? file : path.dirname(file), { recursive: true });
  if (kind === 'file') await writeFile(file, content, { mode });
  if (kind === 'link') await symlink(target, file);
}

test('only files that have changed are read and stored again', async () => {
  await write('same', 'same');
  const file = await write('a', 'old');
  const saving = state();
  const first = await saving.save(undefined);
  expect(new Set(put)).toEqual(new Set([3, 4]));
  expect(await saving.save(first)).toEqual(first);
  expect(put).toHaveLength(2);
  // The same size and time of modification, which code can set.
  const { mtime } = lstatSync(file);
  await writeFile(file, 'new');
  await utimes(file, mtime, mtime);
  const second = await saving.save(first);
  expect(put).toHaveLength(3);
  expect(await entriesOf(second)).toContainEqual(expect.objectContaining({ path: 'a', sha256: sha256('new') }));
  await rename(file, path.join(folder, 'b'));
  expect((await entriesOf(await saving.save(second))).map(({ path }) => path)).toEqual(['b', 'same']);
});

test('the list of a workspace that has not changed is stored once', async () => {
  await write('a/b', 'text');
  await symlink('a', path.join(folder, 'link'));
  const first = await state().save(undefined);
  expect(await state().save(first)).toEqual(first);
  expect(lists).toBe(1);
  await rm(path.join(folder, 'link'));
  const second = await state().save(first);
  expect(await entriesOf(second)).toHaveLength(2);
  expect(lists).toBe(2);
});

test('a file that has just changed is read again by the next save', async () => {
  const file = await write('a', 'old');
  const { ctimeMs } = lstatSync(file);
  const saving = state({ now: () => ctimeMs + 5 });
  const first = await saving.save(undefined);
  await saving.save(first);
  expect(put).toEqual([3, 3]);
});

test('a restored file is not stored again by the next save', async () => {
  await write('a', 'text');
  await write('b/c', 'more');
  const saved = await state().save(undefined);
  const other = await newFolder('other');
  const restored = await state({ folder: other }).restore(saved);
  await state({ folder: other }).save(restored);
  expect(put).toHaveLength(2);
});

test('a large file is stored in pieces', async () => {
  const file = await write('log', Buffer.alloc(9 * 1024 * 1024, 'abc'));
  const saved = await state().save(undefined);
  const [entry] = await entriesOf(saved);
  expect(put).toEqual([4, 4, 1].map((size) => size * 1024 * 1024));
  expect(entry).toMatchObject({ bytes: 9 * 1024 * 1024, sha256: sha256(readFileSync(file)) });
  const other = await newFolder('other');
  await state({ folder: other }).restore(saved);
  expect(treeOf(other)).toEqual(treeOf(folder));
});

test('what exceeds the limits is named and not stored', async () => {
  await write('a/small', '12');
  await write('a/large', 'x'.repeat(100));
  await write('z', '34');
  await truncate(await write('sparse', ''), 1024 ** 4);
  const saved = await state({ limits: { maxBytes: 100, maxFiles: 10 } }).save(undefined);
  expect((await entriesOf(saved)).map(({ path }) => path)).toEqual(['z', 'a', 'a/small']);
  expect(saved).toMatchObject({
    bytes: 4,
    notices: ['not stored: "sparse", "a/large": the files of a workspace have at most 100 bytes'],
  });
});

test('as many files as the limit are looked at, and the notice says so', async () => {
  for (let index = 0; index < 30; index += 1) await write(`many/${index}`, 'x');
  await write('beside', 'x');
  const saved = await state({ limits: { maxBytes: 100, maxFiles: 10 } }).save(undefined);
  expect(saved).toMatchObject({
    files: 9,
    notices: ['not stored: "many/…": a workspace has at most 10 files and folders'],
  });
  expect((await entriesOf(saved))[0]).toMatchObject({ path: 'beside' });
});

test('files that cannot be stored are named: pipes, names that are not Unicode, deep folders, long paths', async () => {
  await write('a', 'x');
  execFileSync('mkfifo', [path.join(folder, 'pipe')]);
  await writeFile(Buffer.concat([Buffer.from(`${folder}/`), Buffer.from([0xff, 0x41])]), 'x');
  await symlink(Buffer.from([0xff]), path.join(folder, 'link'));
  await write(`${'d/'.repeat(101)}file`, 'x');
  execFileSync('sh', [
    '-c',
    `cd "$0"; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do mkdir "$1"; cd "$1"; done; true`,
    folder,
    'n'.repeat(250),
  ]);
  const saved = await state().save(undefined);
  expect(saved.notices.toSorted()).toEqual([
    expect.stringMatching(/^not stored: "d\/d\/.*": it is more than 100 folders deep$/),
    'not stored: "link": the target of the link is not valid Unicode',
    expect.stringMatching(/^not stored: "nnn.*": the path has more than 4096 bytes$/),
    'not stored: "pipe": it is no file, folder or link',
    'not stored: "\ufffdA": the name is not valid Unicode',
  ]);
  const entries = await entriesOf(saved);
  expect(entries.filter(({ kind }) => kind === 'file')).toMatchObject([{ path: 'a' }]);
  const other = await newFolder('other');
  expect((await state({ folder: other }).restore(saved)).notices).toEqual([]);
});

test('a notice has few lines, however many files there are', async () => {
  for (let index = 0; index < 20; index += 1) await write(`${String(index).padStart(2, '0')}\n[everturn] forged`, 'xx');
  const { notices } = await state({ limits: { maxBytes: 1, maxFiles: 100 } }).save(undefined);
  expect(notices).toHaveLength(1);
  expect(notices[0]).toMatch(/^not stored: "00\\n.*", "01\\n.*", "02\\n.*" and 17 more: the files of/);
  expect(notices[0]).not.toContain('\n');
});

test('a folder that is exchanged for a link while it is stored leads nowhere else', async () => {
  await write('../outside/secret', 'secret');
  for (let index = 0; index < 20; index += 1) await write(`d/${index}`, 'inside');
  await symlink('../outside', path.join(folder, 'link'));
  const saving = state();
  const done = new AbortController();
  const attack = (async () => {
    const to = (name: string) => path.join(folder, name);
    while (!done.signal.aborted) {
      for (const [from, into] of [
        ['d', 'e'],
        ['link', 'd'],
        ['d', 'link'],
        ['e', 'd'],
      ] as const) {
        await rename(to(from), to(into)).catch(() => undefined);
      }
    }
  })();
  for (let round = 0; round < 30; round += 1) {
    for (const entry of await entriesOf(await saving.save(undefined))) {
      if (entry.kind === 'file') expect(entry.sha256).toBe(sha256('inside'));
    }
  }
  done.abort();
  await attack;
});

test('a save during which a file grows, shrinks or disappears stores what it has read', async () => {
  const file = await write('a', 'x'.repeat(1_000));
  await write('b', 'gone');
  const changing = replacing(blobs, {
    put: async (sessionId, bytes) => {
      await rm(path.join(folder, 'b'), { force: true });
      await using handle = await open(file, constants.O_WRONLY | constants.O_APPEND);
      await handle.writeFile('y'.repeat(1_000));
      return blobs.put(sessionId, bytes);
    },
  });
  const saved = await state({ blobs: changing }).save(undefined);
  const [entry] = await entriesOf(saved);
  expect(entry).toMatchObject({ path: 'a', bytes: 1_000 });
  const next = await state().save(saved);
  expect(await entriesOf(next)).toMatchObject([{ path: 'a', bytes: lstatSync(file).size }]);
});

test('a store that fails stops a save, and the next one stores everything', async () => {
  for (let index = 0; index < 100; index += 1) await write(`${index}`, `${index}`);
  let calls = 0;
  const failing = replacing(blobs, {
    put: () => {
      calls += 1;
      return Promise.reject(new BlobsUnavailable('no space'));
    },
  });
  await expect(state({ blobs: failing }).save(undefined)).rejects.toThrow(BlobsUnavailable);
  expect(calls).toBeLessThanOrEqual(16);
  expect(await state().save(undefined)).toMatchObject({ files: 100 });
});

test('a file whose content is lost is named, and the others are restored', async () => {
  await write('a', 'lost');
  await write('b', 'kept');
  const saved = await state().save(undefined);
  await blobs.delete(SESSION, [sha256('lost')]);
  const other = await newFolder('other');
  const restored = await state({ folder: other }).restore(saved);
  expect(restored).toMatchObject({ files: 1, notices: ['lost: "a": the blob store no longer has it'] });
  expect(readdirSync(other)).toEqual(['b']);
});

test('if the list is lost, the next save stores everything', async () => {
  await write('a', 'text');
  const saved = await state().save(undefined);
  await blobs.deleteAll(SESSION);
  const next = await state().save(saved);
  expect(await entriesOf(next)).toMatchObject([{ path: 'a' }]);
  expect(put).toEqual([4, 4]);
});

test('a workspace that is missing, or is a link, is not saved as an empty one', async () => {
  await expect(state({ folder: path.join(root, 'missing') }).save(undefined)).rejects.toThrow('ENOENT');
  await symlink(folder, path.join(root, 'linked'));
  await expect(state({ folder: path.join(root, 'linked') }).save(undefined)).rejects.toThrow('ENOTDIR');
});

test('the changes of a client are made, beside those of code', async () => {
  await write('kept', 'kept');
  await write('removed', 'text');
  await write('replaced', 'old');
  const before = await state().save(undefined);
  const other = await newFolder('other');
  const client = state({ folder: other });
  await client.restore(before);
  await rm(path.join(other, 'removed'));
  await writeFile(path.join(other, 'replaced'), 'new');
  await mkdir(path.join(other, 'made'));
  await writeFile(path.join(other, 'made/file'), 'made');
  await writeFile(path.join(other, 'blocked'), 'text');
  const after = await client.save(before);
  // The work of code meanwhile.
  await write('kept', 'changed');
  await mkdir(path.join(folder, 'blocked'));
  expect(await state().change(before, after)).toEqual([
    expect.stringMatching(/^not changed by a client: "blocked": .*folder/),
  ]);
  const texts = ['kept', 'replaced', 'made/file'].map((name) => readFileSync(path.join(folder, name), 'utf8'));
  expect(texts).toEqual(['changed', 'new', 'made']);
  expect(readdirSync(folder)).not.toContain('removed');
});

test('a list is restored into an empty folder only', async () => {
  await write('a', 'text');
  const saved = await state().save(undefined);
  await expect(state().restore(saved)).rejects.toThrow('is not empty');
});

test.skipIf(!isRoot)('what root restores belongs to the user of the sandbox', async () => {
  await chmod(await write('a/b', 'text'), 0o755);
  await symlink('a/b', path.join(folder, 'l'));
  const saved = await state().save(undefined);
  const other = await newFolder('other');
  const owner = { uid: 61_234, gid: 61_234 };
  await state({ folder: other, owner }).restore(saved);
  for (const name of ['a', 'a/b', 'l']) expect(lstatSync(path.join(other, name))).toMatchObject(owner);
});

test('times that code has set do not break the list', async () => {
  const file = await write('a', 'text');
  await utimes(file, -1e9, 1e12);
  const [entry] = await entriesOf(await state().save(undefined));
  expect(() => new Date((entry as { modifiedAt: number }).modifiedAt).toISOString()).not.toThrow();
});
