import { posix } from 'node:path';
import { MAX_PATH_BYTES, WORKSPACE } from '../../../spec/workspace-path.ts';

/** An action on which a person or a rule decides. */
export type PermissionAction =
  | { type: 'code' | 'reset' | 'task' | 'save_tool' }
  /** `path` as written. */
  | { type: 'file_read' | 'file_write' | 'file_edit'; path: string }
  | { type: 'tool'; server: string; name: string }
  | ({ type: 'shell' } & CommandPiece);

/** A part of a line between `&&`, `||`, `|`, `;`, `&` and ends of lines; or a whole script, which is opaque. */
export interface CommandPiece {
  /** As written, without surrounding blanks. */
  text: string;
  /** Whether more may run than its text shows. A rule with a wildcard never allows such a piece. */
  isOpaque: boolean;
  /** Its simple commands, with single blanks; for an opaque piece, also those inside of it, with and without quotes. */
  commands: readonly string[];
}

/**
 * The file of a path, if no link leads elsewhere: `inside` the workspace, relative to it, or an absolute path.
 * Undefined for a text that cannot be the path of a file.
 */
export function resolvePath(path: string): { inside: string } | { outside: string } | undefined {
  if (path === '' || path.includes('\0') || path.startsWith('~')) return undefined;
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) return undefined;
  const resolved = posix.resolve(WORKSPACE, path);
  if (resolved === WORKSPACE) return { inside: '' };
  return resolved.startsWith(`${WORKSPACE}/`)
    ? { inside: resolved.slice(WORKSPACE.length + 1) }
    : { outside: resolved };
}
