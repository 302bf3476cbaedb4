import type fs from 'node:fs/promises';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { BlobNotFound, BlobsUnavailable } from './blob-store.ts';
import { FolderBlobStore } from './folder-blob-store.ts';

/** The syncs and renames in their order, since a test cannot cut the power. */
const steps: string[] = [];

vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof fs>();
  return {
    ...real,
    rename: async (from: string, to: string) => {
      await real.rename(from, to);
      steps.push(`rename ${to}`);
    },
    open: async (file: string, flags?: string) => {
      const handle = await real.open(file, flags);
      const sync = handle.sync.bind(handle);
      handle.sync = async () => {
        await sync();
        steps.push(`sync ${path.basename(file).startsWith('.') ? 'bytes' : file}`);
      };
      return handle;
    },
  };
});

test('a stored blob survives a power cut: its bytes, its name and its session folder are synced', async () => {
  const root = await mkdtemp(path.join(tmpdir(), 'everturn-blobs-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const blobs = new FolderBlobStore(root);
  const folder = path.join(root, 'ses_1');
  const name = await blobs.put('ses_1', Buffer.from('x'));
  const names = [`sync ${folder}`, `sync ${root}`];
  expect(steps.splice(0)).toEqual(['sync bytes', `rename ${path.join(folder, name)}`, ...names]);
  // Another process may have renamed the file just before, without having synced the folders yet.
  expect(await blobs.put('ses_1', Buffer.from('x'))).toBe(name);
  expect(steps).toEqual(names);
});

test('a folder that cannot be used is an outage, which an operator can mend, and no blob that is lost', async () => {
  const root = await mkdtemp(path.join(tmpdir(), 'everturn-blobs-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const blobs = new FolderBlobStore(root);
  await writeFile(path.join(root, 'ses_1'), 'in the way');
  await expect(blobs.put('ses_1', Buffer.from('x'))).rejects.toThrow(BlobsUnavailable);
  await expect(blobs.get('ses_1', '0'.repeat(64))).rejects.toThrow(BlobsUnavailable);
  await rm(path.join(root, 'ses_1'));
  const name = await blobs.put('ses_1', Buffer.from('x'));
  expect(await blobs.get('ses_1', name)).toEqual(Buffer.from('x'));
  await expect(blobs.get('ses_1', '0'.repeat(64))).rejects.toThrow(BlobNotFound);
});
