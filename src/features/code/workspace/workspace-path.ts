import { NamedError } from '../../../lib/errors.ts';
import { MAX_NAME_BYTES, MAX_PATH_BYTES, WORKSPACE } from '../../../spec/workspace-path.ts';

/** The maximum characters of a path in an error. */
const MAX_SHOWN_LENGTH = 200;

/**
 * - `invalid_path`: the path leaves the workspace, or cannot be a path
 * - `not_found`: there is no such file
 * - `not_a_file`: it is a folder, a pipe, a socket or a device
 * - `unsuitable`: its content does not permit the operation
 * - `failed`: the operating system refused
 * - `full`: the workspace would exceed its limits
 * - `running`: a call runs, which may change the files
 */
type Problem = 'invalid_path' | 'not_found' | 'not_a_file' | 'unsuitable' | 'failed' | 'full' | 'running';

/** A file of a workspace cannot be read or written. The message is for models and clients. */
export class WorkspaceFileError extends NamedError {
  readonly code: Problem;

  constructor(code: Problem, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** A path for a message, quoted, since names may contain line breaks and control characters. */
export function shown(path: string): string {
  return JSON.stringify(path.length > MAX_SHOWN_LENGTH ? `${path.slice(0, MAX_SHOWN_LENGTH)}…` : path);
}

export function leaves(path: string, place = WORKSPACE): WorkspaceFileError {
  return new WorkspaceFileError('invalid_path', `${shown(path)} leads out of ${place}`);
}

/**
 * The steps from the workspace to a path of a tool call: names and `..`, and `.` at the end of a path that can only be
 * a folder. A relative path begins in the workspace.
 * @param folder the path of the workspace on the host, and for code that is confined without namespaces
 * @param place its path for code with namespaces
 * @throws WorkspaceFileError
 */
export function stepsOf(path: string, folder: string, place = WORKSPACE): string[] {
  const invalid = (reason: string) => new WorkspaceFileError('invalid_path', reason);
  if (path === '') throw invalid('the path is empty');
  if (path.includes('\0')) throw invalid(`${shown(path)} contains NUL`);
  if (!path.isWellFormed()) throw invalid(`${shown(path)} is not valid Unicode`);
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) throw invalid(`the path has more than ${MAX_PATH_BYTES} bytes`);
  if (/^~(?:\/|$)/.test(path)) throw invalid(`${shown(path)}: ~ is outside of ${place}; name a path below it`);
  const steps = stepsOfTarget(path, folder, place);
  if (!steps) throw leaves(path, place);
  if (steps.names.some((name) => Buffer.byteLength(name) > MAX_NAME_BYTES)) {
    throw invalid(`${shown(path)} contains a name of more than ${MAX_NAME_BYTES} bytes`);
  }
  return steps.names;
}

/** The steps to the target of a link, from its folder or from the workspace; undefined if it is outside. */
export function stepsOfTarget(
  target: string,
  folder: string,
  place = WORKSPACE,
): { names: string[]; from: 'workspace' | 'folder' } | undefined {
  const names = split(target);
  if (!target.startsWith('/')) return { names, from: 'folder' };
  const prefix = [place, folder].map(split).find((root) => root.every((name, index) => names[index] === name));
  return prefix && { names: names.slice(prefix.length), from: 'workspace' };
}

function split(path: string): string[] {
  const all = path.split('/');
  const names = all.filter((name) => name !== '' && name !== '.');
  const isFolder = ['', '.'].includes(all.at(-1) ?? '');
  return isFolder && names.length > 0 ? [...names, '.'] : names;
}
