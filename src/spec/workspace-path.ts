import { posix } from 'node:path';

/** Where code sees the files of its session. */
export const WORKSPACE = '/workspace';

/** Where code sees the skills of its agent, each in a folder of its name. */
export const SKILLS_FOLDER = '/skills';

/** In bytes, as Linux has them. */
export const MAX_PATH_BYTES = 4_096;
export const MAX_NAME_BYTES = 255;

export const WORKSPACE_PATH_RULE =
  `must be a path of a file below ${WORKSPACE}, relative to it or absolute, of at most ${MAX_PATH_BYTES} bytes, ` +
  `and ${MAX_NAME_BYTES} for each name`;

/** A path of a file below the workspace, relative to it and without `.` and `..`; undefined for any other path. */
export function workspacePath(path: string): string | undefined {
  if (path.includes('\0') || Buffer.byteLength(path) > MAX_PATH_BYTES) return undefined;
  const resolved = posix.resolve(WORKSPACE, path);
  if (!resolved.startsWith(`${WORKSPACE}/`) || path.endsWith('/')) return undefined;
  const relative = resolved.slice(WORKSPACE.length + 1);
  return relative.split('/').every((name) => Buffer.byteLength(name) <= MAX_NAME_BYTES) ? relative : undefined;
}
