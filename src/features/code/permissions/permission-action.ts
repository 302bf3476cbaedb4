import { posix } from 'node:path';
import { MAX_PATH_BYTES, WORKSPACE } from '../../../spec/workspace-path.ts';

/** What a person, or a rule, decides on. */
export type PermissionAction =
  | { type: 'code' | 'reset' | 'task' | 'save_tool' }
  /** `path` as it was written. */
  | { type: 'file_read' | 'file_write' | 'file_edit'; path: string }
  | { type: 'tool'; server: string; name: string }
  | ({ type: 'shell' } & CommandPiece);

/** A part of a line between `&&`, `||`, `|`, `;`, `&` and ends of lines; or a whole script, which is opaque. */
export interface CommandPiece {
  /** As it was written, without the blanks around it. */
  text: string;
  /** Whether more may run than its text shows at once. A rule with a wildcard never allows such a piece. */
  isOpaque: boolean;
  /** The simple commands in it, with one blank between words. Of an opaque piece those inside of it, too, also without quotes. */
  commands: readonly string[];
}

/**
 * The file that a path names, if no link leads elsewhere: below the workspace, relative to it, or an absolute path.
 * Undefined for what cannot be a path of a file.
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
