import { posix } from 'node:path';
import type { StoredFile } from '../../../core/records/input.ts';
import type { PlaceFiles } from '../../../engine/store-input.ts';
import { codeActionsOf } from '../../../spec/code-actions.ts';
import { MAX_NAME_BYTES } from '../../../spec/workspace-path.ts';
import type { StoredWorkspaces } from './stored-workspace.ts';
import { WorkspaceFileError } from './workspace-path.ts';

/** Leaves room for the suffix of a name that is taken. */
const MAX_STEM_BYTES = MAX_NAME_BYTES - 64;

/** Writes the files of users into the workspace, under their names. */
export function placeFilesIn(workspaces: Pick<StoredWorkspaces, 'place'>): PlaceFiles {
  return async (files, { sessionId, spec }) => {
    const actions = codeActionsOf(spec);
    if (!actions || files.length === 0) return [];
    const contents = files.map((file) => ({ name: safeFileName(file), content: contentOf(file) }));
    try {
      return await workspaces.place(sessionId, contents, actions.workspace);
    } catch (error) {
      // The workspace is full, or code is changing it. The model gets the files nevertheless.
      if (error instanceof WorkspaceFileError) return [];
      throw error;
    }
  };
}

/** A safe name for a file in the workspace, since clients choose the names. */
export function safeFileName({ name }: Pick<StoredFile, 'name'>): string {
  const safe = name.toWellFormed().replaceAll(/[/\0]/g, '_');
  const { name: stem, ext } = posix.parse(safe);
  if (['', '.', '..', '~'].includes(safe)) return 'file';
  if (Buffer.byteLength(safe) <= MAX_STEM_BYTES) return safe;
  const extension = Buffer.byteLength(ext) <= 16 ? ext : '';
  return `${Buffer.from(stem)
    .subarray(0, MAX_STEM_BYTES - 16)
    .toString()
    .replace(/\uFFFD$/, '')}${extension}`;
}

/** The content of a file: the files of a request are always inline. */
function contentOf(file: StoredFile): Buffer {
  return 'base64' in file ? Buffer.from(file.base64, 'base64') : Buffer.alloc(0);
}
