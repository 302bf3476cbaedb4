import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { BlobStore } from '../../../blobs/blob-store.ts';

/** Files are stored in pieces of this size, the last one possibly shorter, since a blob is in memory as a whole. */
export const PIECE_BYTES = 4 * 1024 * 1024;

export const workspaceList = z.object({
  /** The blob with the entries. */
  blob: z.string(),
  /** The number of files, without folders and links, and their bytes. */
  files: z.number(),
  bytes: z.number(),
  /** Notices for the model and for people about the parts of the workspace that are not stored, and why. */
  notices: z.array(z.string()),
});

/** The stored files of a workspace, for the row of its sandbox. */
export type WorkspaceList = z.infer<typeof workspaceList>;

/** The list in the row of a sandbox; undefined if nothing is stored yet. */
export function workspaceListOf({ workspace }: { workspace: string | null }): WorkspaceList | undefined {
  return workspace === null ? undefined : workspaceList.parse(JSON.parse(workspace));
}

const file = z.object({
  kind: z.literal('file'),
  path: z.string(),
  bytes: z.number(),
  isExecutable: z.boolean(),
  /** In milliseconds since 1970. */
  modifiedAt: z.number(),
  sha256: z.string(),
  /** The blobs of its content, in pieces. */
  blobs: z.array(z.string()),
  /** Changes with the content; unset if it may not yet have changed with it. */
  stamp: z.string().optional(),
});

const entry = z.discriminatedUnion('kind', [
  file,
  z.object({ kind: z.literal('folder'), path: z.string() }),
  z.object({ kind: z.literal('link'), path: z.string(), target: z.string() }),
]);

export type StoredWorkspaceFile = z.infer<typeof file>;

/** The stored form of a file, folder or link below a workspace. A folder precedes its contents. */
export type WorkspaceEntry = z.infer<typeof entry>;

/** The blobs of a session in a blob store. */
export interface SessionBlobs {
  blobs: BlobStore;
  sessionId: string;
}

/** @throws BlobNotFound, BlobTooLarge */
export async function readWorkspaceList(
  { blobs, sessionId }: SessionBlobs,
  { blob }: Pick<WorkspaceList, 'blob'>,
  maxBytes?: number,
): Promise<WorkspaceEntry[]> {
  const bytes = await blobs.get(sessionId, blob, maxBytes);
  return z.array(entry).parse(JSON.parse(bytes.toString()));
}

export function filesIn(entries: readonly WorkspaceEntry[]): StoredWorkspaceFile[] {
  return entries.filter((one) => one.kind === 'file');
}

/** A list with its entries. */
export interface ReadList {
  blob: string;
  entries: WorkspaceEntry[];
}

/** @param before the stored list: equal entries are not stored again, which would wait for the disk */
export async function storeWorkspaceList(
  { blobs, sessionId }: SessionBlobs,
  { entries, notices }: { entries: WorkspaceEntry[]; notices: string[] },
  before?: ReadList,
): Promise<WorkspaceList> {
  const files = filesIn(entries);
  const isStored = before && isDeepStrictEqual(before.entries, entries);
  const blob = isStored ? before.blob : await blobs.put(sessionId, Buffer.from(JSON.stringify(entries)));
  return { blob, files: files.length, bytes: files.reduce((sum, { bytes }) => sum + bytes, 0), notices };
}
