import path from 'node:path';
import { FolderBlobStore } from '../../src/blobs/folder-blob-store.ts';
import { StoredVariables } from '../../src/features/code/host/stored-variables.ts';
import type { KernelSnapshot } from '../../src/features/code/kernel-snapshot.ts';
import type { TestSandbox } from './kernels.ts';

/** The rows of a catalog on the variables of one kernel. */
export interface SnapshotRow {
  snapshot: KernelSnapshot | undefined;
  /** The blobs that it needs. */
  held: string[];
}

export interface StoredVariablesOptions {
  isOn?: boolean;
  row?: SnapshotRow;
  /** Resolves when the catalog answers. */
  answers?: () => Promise<void>;
}

/** The stored variables of a kernel in a sandbox, of which `row` is kept as by a catalog. */
export function storedVariables(
  { root, uid, wall }: TestSandbox,
  {
    isOn = true,
    row = { snapshot: undefined, held: [] },
    answers = () => Promise.resolve(),
  }: StoredVariablesOptions = {},
): StoredVariables {
  return new StoredVariables({
    blobs: new FolderBlobStore(path.join(root, 'blobs')),
    sessionId: 'ses_1',
    threadId: 'main',
    root,
    uid: wall.hasOwnUser ? uid : undefined,
    isOn: () => isOn,
    snapshot: row.snapshot,
    hidden: () => [],
    hide: () => undefined,
    write: async (snapshot, blobs = row.held) => {
      await answers();
      Object.assign(row, { snapshot, held: blobs });
    },
  });
}
