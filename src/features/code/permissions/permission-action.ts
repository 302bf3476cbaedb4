import { posix } from 'node:path';
import { MAX_PATH_BYTES, WORKSPACE } from '../../../spec/workspace-path.ts';

/** What a person, or a rule, decides on. */
export type PermissionAction =
  | { type: 'code' | 'reset' | 'task' | 'save_tool' }
  /** `path` as it was written. */
  | { type: 'file_read' | 'file_write' | 'file_edit'; path: string }
  | { type: 'tool'; server: string; name: string }
  | ({ type: 'shell' } & CommandPiece);

/** A piece of a command line, as the parser of commands gives it; or a whole script, which is opaque. */
export interface CommandPiece {
  text: string;
  /** It may do more than its words say: rules with wildcards do not allow it. */
  isOpaque: boolean;
  /** The simple commands inside it. */
  commands: readonly string[];
}

/** A path below the workspace, relative to it, or an absolute one. */
export type ResolvedPath = { inside: string } | { outside: string };

/** The file that a path names, if no link leads elsewhere; undefined for what cannot be a path of a file. */
export function resolvePath(path: string): ResolvedPath | undefined {
  if (path === '' || path.includes('\0') || path.startsWith('~')) return undefined;
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) return undefined;
  const resolved = posix.resolve(WORKSPACE, path);
  if (resolved === WORKSPACE) return { inside: '' };
  return resolved.startsWith(`${WORKSPACE}/`)
    ? { inside: resolved.slice(WORKSPACE.length + 1) }
    : { outside: resolved };
}
