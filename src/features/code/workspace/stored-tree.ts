import { posix } from 'node:path';
import { MAX_PATH_BYTES, WORKSPACE } from '../../../spec/workspace-path.ts';
import type { StoredWorkspaceFile, WorkspaceEntry } from './workspace-list.ts';
import { leaves, shown, stepsOf, stepsOfTarget, WorkspaceFileError } from './workspace-path.ts';

/** The number of names and links that are followed for one path. */
const MAX_STEPS = 1_000;

/** The folder of Everturn's own files. */
const OWN_FOLDER = '.everturn';

/** The file or folder of a path. */
export type StoredItem = { path: string } & ({ file: StoredWorkspaceFile } | { isFolder: true });

/** A stored workspace. Paths are resolved as in its folder: links are followed, but never out of the workspace. */
export class StoredTree {
  readonly #entries: Map<string, WorkspaceEntry>;

  constructor(entries: readonly WorkspaceEntry[]) {
    this.#entries = new Map(entries.map((entry) => [entry.path, entry]));
  }

  get entries(): WorkspaceEntry[] {
    return [...this.#entries.values()];
  }

  /** Whether an entry of any kind, also a link, has this path. */
  has(path: string): boolean {
    return this.#entries.has(path);
  }

  /** The first candidate name for a file that is free, or whose file has this content. @throws WorkspaceFileError */
  freeName(name: string, sha256: string): string {
    for (const free of freeNames(name)) {
      const entry = this.#entries.get(free);
      if (!entry || (entry.kind === 'file' && entry.sha256 === sha256)) return free;
    }
    throw new WorkspaceFileError('full', `there are too many files of the name ${shown(name)}`);
  }

  /** @throws WorkspaceFileError */
  file(path: string): StoredWorkspaceFile {
    const item = this.#item(path);
    if ('file' in item) return item.file;
    throw new WorkspaceFileError('not_a_file', `${shown(path)} is a folder`);
  }

  /**
   * The contents of a folder in the order of the paths; for a file, only itself. Broken links are left out, and folders
   * behind links are not entered.
   * @throws WorkspaceFileError
   */
  list(path: string, { isRecursive }: { isRecursive: boolean }): StoredItem[] {
    const top = this.#item(path);
    if ('file' in top) return [top];
    const prefix = top.path === '' ? '' : `${top.path}/`;
    const inside = [...this.#entries.keys()].filter((one) => one.startsWith(prefix));
    const listed = isRecursive
      ? inside
      : inside.filter((one) => !one.includes('/', prefix.length) && one !== OWN_FOLDER);
    return listed.toSorted(byCodeUnits).flatMap((one) => this.#listed(one));
  }

  /** The workspace with a new or changed file. @throws WorkspaceFileError */
  with(path: string, content: Omit<StoredWorkspaceFile, 'kind' | 'path' | 'isExecutable'>): StoredTree {
    const names = this.#namesOf(path);
    const place = names.join('/');
    const replaced = this.#entries.get(place);
    if (names.length === 0 || replaced?.kind === 'folder') {
      throw new WorkspaceFileError('not_a_file', `${shown(path)} is a folder`);
    }
    if (Buffer.byteLength(place) > MAX_PATH_BYTES) throw leaves(path);
    const folders = names.slice(0, -1).map((_, i) => names.slice(0, i + 1).join('/'));
    const file = folders.find((folder) => this.#entries.get(folder)?.kind === 'file');
    if (file !== undefined) throw new WorkspaceFileError('invalid_path', `${shown(file)} is no folder`);
    const isExecutable = replaced?.kind === 'file' && replaced.isExecutable;
    const missing = folders.filter((folder) => !this.#entries.has(folder));
    const made = missing.map((folder): WorkspaceEntry => ({ kind: 'folder', path: folder }));
    // A folder precedes its contents.
    const others = this.entries.filter((entry) => entry.path !== place);
    return new StoredTree([...others, ...made, { kind: 'file', path: place, isExecutable, ...content }]);
  }

  /** The workspace without a file. @throws WorkspaceFileError */
  without(path: string): StoredTree {
    const { path: place } = this.file(path);
    return new StoredTree(this.entries.filter((entry) => entry.path !== place));
  }

  #item(path: string): StoredItem {
    const place = this.#namesOf(path).join('/');
    const entry = this.#entries.get(place);
    if (entry?.kind === 'file') return { path: place, file: entry };
    if (place === '' || entry) return { path: place, isFolder: true };
    throw new WorkspaceFileError('not_found', `${shown(path)} does not exist`);
  }

  /** An entry of a list, at its own path. */
  #listed(path: string): StoredItem[] {
    const entry = this.#entries.get(path);
    if (entry?.kind !== 'link') return [this.#item(path)];
    try {
      return [{ ...this.#item(path), path }];
    } catch (error) {
      if (error instanceof WorkspaceFileError) return [];
      throw error;
    }
  }

  /** The names from the workspace to the target of a path, with links resolved. */
  #namesOf(path: string): string[] {
    const steps = stepsOf(path, WORKSPACE).toReversed();
    let names: string[] = [];
    for (let taken = 0; taken < MAX_STEPS; taken += 1) {
      const step = steps.pop();
      if (step === undefined) return names;
      if (step === '.') continue;
      if (step === '..') {
        if (names.length === 0) throw leaves(path);
        names.pop();
        continue;
      }
      const entry = this.#entries.get([...names, step].join('/'));
      if (entry?.kind !== 'link') {
        names.push(step);
        continue;
      }
      const target = stepsOfTarget(entry.target, WORKSPACE);
      if (!target) throw leaves(path);
      if (target.from === 'workspace') names = [];
      steps.push(...target.names.toReversed());
    }
    throw new WorkspaceFileError('invalid_path', `${shown(path)} has too many links and folders`);
  }
}

function byCodeUnits(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

/** Candidate names: the name itself, then the name with increasing numbers. */
function* freeNames(name: string): Generator<string> {
  yield name;
  const { name: stem, ext } = posix.parse(name);
  for (let number = 2; number <= 100; number += 1) yield `${stem} (${number})${ext}`;
}
