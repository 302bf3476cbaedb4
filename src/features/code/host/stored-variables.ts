import { randomUUID } from 'node:crypto';
import { chown, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { BlobNotFound } from '../../../blobs/blob-store.ts';
import { retryWhileUnavailable } from '../../../engine/retry.ts';
import { NEVER_ABORTED } from '../../../lib/abort.ts';
import { errorMessage } from '../../../lib/errors.ts';
import { withTimeout } from '../../../lib/timeout.ts';
import type { KeptVariables } from '../kernel/frames.ts';
import type { Kernel } from '../kernel/kernel.ts';
import type { CellEnd, KernelEnd } from '../kernel/running-cell.ts';
import type { KernelSnapshot } from '../kernel-snapshot.ts';
import { filesIn, readWorkspaceList, type SessionBlobs, type WorkspaceList } from '../workspace/workspace-list.ts';
import { WorkspaceState } from '../workspace/workspace-state.ts';
import { namesOf } from './cell-result.ts';
import { removeTree } from './host-folder.ts';

/** How long the result of a cell waits for its variables to be stored. */
const SAVE_MS = 10_000;
/** The time after which a kernel that pickles its variables is interrupted; those stored until then are kept. */
const PICKLE_MS = 8_000;
const RESTORE_MS = 10_000;

/** The limits that the kernel observes for its variables and their index. */
const LIMITS = { maxBytes: 257 * 1024 * 1024, maxFiles: 1_001 };
const MAX_NAMES = 200;
const CATALOG_SLOW = 'the catalog is too slow';

interface StoredVariablesOptions extends SessionBlobs {
  threadId: string;
  /** The folder in which the folders of its kernels are made; no code can replace them. */
  root: string;
  uid: number | undefined;
  /** Whether the agent currently wants variables to be stored. */
  isOn: () => boolean;
  /** The snapshot in the catalog. */
  snapshot: KernelSnapshot | undefined;
  /** The names of the host variables whose values code has had. */
  hidden: () => string[];
  /** Hides the values of host variables. @throws Error if the host no longer has one of them */
  hide: (names: readonly string[]) => void;
  /** Writes the snapshot into the catalog. @param blobs the ones it needs, if changed. @throws Error with the reason */
  write: (snapshot: KernelSnapshot | undefined, blobs?: string[]) => Promise<void>;
}

/** A new kernel, with the restored variables of the one before. */
export interface StartedKernel {
  kernel: Kernel;
  /** Absent if none were stored. */
  restored?: RestoredVariables;
}

export interface RestoredVariables {
  /** At most 200. */
  names: string[];
  count: number;
  lost: string[];
  lostCount: number;
  /** They are older than the last cell, which did not succeed. */
  isBehind: boolean;
}

/** An ended cell, after which variables may be stored. */
interface EndedCell extends Pick<KernelSnapshot, 'generation' | 'intactSince' | 'turnId'> {
  end: CellEnd;
}

/**
 * The variables of a thread's kernels, stored by content after each cell that succeeds. They are pickled and unpickled
 * only in kernels; this process handles them as files.
 */
export class StoredVariables {
  readonly #options: StoredVariablesOptions;
  #snapshot: KernelSnapshot | undefined;
  /** The variables folder of the running kernel, and its stored list. */
  #folder: string | undefined;
  #list: WorkspaceList | undefined;
  /** The cell after which variables were last stored. */
  #storedAfter: EndedCell | undefined;
  /** Changes of the stored variables, one after the other. A late change continues after the result of its cell. */
  #changes: Promise<unknown> = Promise.resolve();

  constructor(options: StoredVariablesOptions) {
    this.#options = options;
    this.#snapshot = options.snapshot;
  }

  get snapshot(): KernelSnapshot | undefined {
    return this.#snapshot;
  }

  /**
   * Starts a kernel with the stored variables.
   * @param start starts a kernel with this folder for its variables
   * @throws BlobsUnavailable, and the errors of `start`
   */
  async start(start: (folder?: string) => Promise<Kernel>): Promise<StartedKernel> {
    await this.#changes;
    if (!this.#options.isOn()) {
      await this.drop();
      return { kernel: await start() };
    }
    const snapshot = this.#snapshot;
    const restored = snapshot && (await this.#restore(snapshot, start));
    if (!snapshot) return { kernel: await start(await this.#makeFolder()) };
    const kept = restored?.kept ?? NOTHING;
    const lost = [...snapshot.kept.filter((name) => !kept.kept.includes(name)), ...snapshot.others];
    const names = kept.kept.filter((name) => snapshot.kept.includes(name));
    const count = Math.min(kept.keptCount, snapshot.keptCount);
    const lostCount = snapshot.keptCount - count + snapshot.otherCount;
    return {
      kernel: restored?.kernel ?? (await start(await this.#makeFolder())),
      restored: { names, count, lost: lost.slice(0, MAX_NAMES), lostCount, isBehind: snapshot.isBehind },
    };
  }

  /** Records that a kernel has begun with the restored variables: the lost ones are no longer reported. */
  async began(
    { names, count }: RestoredVariables,
    { generation, intactSince }: Pick<KernelSnapshot, 'generation' | 'intactSince'>,
  ): Promise<void> {
    const snapshot = this.#snapshot;
    if (!snapshot) return;
    const kept = { kept: names, keptCount: count, others: [], otherCount: 0, isBehind: false };
    await this.#change(() => this.#note({ ...snapshot, ...kept, generation, intactSince }));
  }

  /**
   * Stores the variables after a cell. After 10 s, it returns a notice that they are not stored; the work continues.
   * @returns notices for the model, and the end of the kernel if it has ended
   */
  async save(kernel: Kernel, cell: EndedCell): Promise<{ notices: string[]; kernelEnd?: KernelEnd }> {
    // There is no folder if the agent did not want variables to be stored when the kernel was started.
    const folder = this.#folder;
    const end = performance.now() + SAVE_MS;
    if (!this.#options.isOn() || folder === undefined) {
      await this.note(cell, end);
      return { notices: [] };
    }
    const within = <T>(work: Promise<T>): Promise<T> => withTimeout(leftUntil(end), work, CATALOG_SLOW);
    try {
      // Waits for the changes of earlier cells.
      await within(this.#changes);
      const { variables, exit, kernelEnd } = await kernel.keepVariables('save', { timeoutMs: PICKLE_MS });
      if (kernelEnd) {
        await this.note(cell, end);
        return { notices: [], kernelEnd };
      }
      if (!variables) throw new Error('the kernel could not write them');
      await within(this.#change(() => this.#store(folder, variables, cell, end)));
      return { notices: exit === 'timeout' ? lateNotice(variables) : [] };
    } catch (error) {
      await this.note(cell, end);
      return { notices: [`the variables are not stored: ${errorMessage(error)}`] };
    }
  }

  /**
   * Records a cell after which nothing is stored, so that its variables would be lost. Its result waits at most 10 s.
   * @param end the end of this time: see `performance.now()`
   */
  async note(cell: EndedCell, end = performance.now() + SAVE_MS): Promise<void> {
    const noted = this.#change(() => this.#noteCell(cell));
    await withTimeout(leftUntil(end), noted, CATALOG_SLOW).catch(() => undefined);
  }

  async #noteCell(ended: EndedCell): Promise<void> {
    const snapshot = this.#snapshot;
    // The variables may have been stored after all, too late for the cell's result.
    if (!snapshot || this.#storedAfter === ended) return;
    const { end, ...cell } = ended;
    const known = new Set([...snapshot.kept, ...snapshot.others]);
    const others = [...snapshot.others, ...end.names.filter((name) => !known.has(name))];
    // Names beyond the first 200 are unknown.
    const isWhole = end.nameCount <= MAX_NAMES && snapshot.keptCount <= MAX_NAMES;
    const otherCount = isWhole ? others.length : Math.max(snapshot.otherCount, end.nameCount - snapshot.keptCount);
    const changed = { others: others.slice(0, MAX_NAMES), otherCount, isBehind: true };
    await this.#note({ ...snapshot, ...cell, ...changed });
  }

  /** Drops the stored variables: the next kernel begins without any. */
  drop(): Promise<void> {
    return this.#change(() => this.#drop());
  }

  async #drop(): Promise<void> {
    await this.#removeFolder();
    if (!this.#snapshot) return;
    this.#snapshot = undefined;
    const forget = () => this.#options.write(undefined, []);
    // Otherwise, another host would begin with them.
    await retryWhileUnavailable(forget, NEVER_ABORTED).catch(() => undefined);
  }

  /** Restores variables; undefined if all are lost, also if no kernel survives this. @throws BlobsUnavailable */
  async #restore(
    { list, hidden }: KernelSnapshot,
    start: (folder: string) => Promise<Kernel>,
  ): Promise<{ kernel: Kernel; kept: KeptVariables } | undefined> {
    try {
      this.#options.hide(hidden);
    } catch {
      // Values that can no longer be hidden must not be restored.
      return undefined;
    }
    const folder = await this.#makeFolder();
    try {
      this.#list = await this.#state(folder).restore(list);
    } catch (error) {
      if (!(error instanceof BlobNotFound)) throw error;
      return undefined;
    }
    const kernel = await start(folder);
    const { variables: kept } = await kernel.keepVariables('restore', { timeoutMs: RESTORE_MS });
    if (kept) return { kernel, kept };
    await kernel.stop('its variables could not be restored');
    return undefined;
  }

  /** @param end the deadline of the blob store: see `performance.now()` */
  async #store(folder: string, variables: KeptVariables, cell: EndedCell, end: number): Promise<void> {
    const { threadId, hidden, write } = this.#options;
    const { generation, intactSince, turnId } = cell;
    const { kept, keptCount, lost: others, lostCount: otherCount } = variables;
    const saving = this.#saveFiles(folder);
    const { list, files } = await withTimeout(leftUntil(end), saving, 'the blob store is too slow');
    const stored = { kept, keptCount, others, otherCount, isBehind: false };
    const snapshot = { threadId, generation, intactSince, turnId, list, hidden: hidden(), ...stored };
    await write(snapshot, [list.blob, ...files.flatMap((file) => file.blobs)]);
    this.#list = list;
    this.#snapshot = snapshot;
    this.#storedAfter = cell;
  }

  async #saveFiles(folder: string) {
    const list = await this.#state(folder).save(this.#list);
    return { list, files: filesIn(await readWorkspaceList(this.#options, list)) };
  }

  /** Changes the stored variables, after all earlier changes. */
  #change(change: () => Promise<void>): Promise<void> {
    const changed = this.#changes.then(change);
    this.#changes = changed.catch(() => undefined);
    return changed;
  }

  async #note(snapshot: KernelSnapshot): Promise<void> {
    this.#snapshot = snapshot;
    // Retried, so that no other host begins with old variables. After other failures, this host has the new state.
    await retryWhileUnavailable(() => this.#options.write(snapshot), NEVER_ABORTED).catch(() => undefined);
  }

  #state(folder: string): WorkspaceState {
    const { blobs, sessionId, uid } = this.#options;
    const owner = uid === undefined ? {} : { owner: { uid, gid: uid } };
    return new WorkspaceState({ folder, ...owner, blobs, sessionId, limits: LIMITS });
  }

  /** Makes an empty folder for the next kernel. */
  async #makeFolder(): Promise<string> {
    await this.#removeFolder();
    const { root, uid } = this.#options;
    const folder = path.join(root, `variables-${randomUUID()}`);
    await mkdir(folder, { mode: 0o700 });
    if (uid !== undefined) await chown(folder, uid, uid);
    this.#folder = folder;
    return folder;
  }

  async #removeFolder(): Promise<void> {
    const folder = this.#folder;
    this.#folder = undefined;
    this.#list = undefined;
    if (folder !== undefined) await removeTree(folder);
  }
}

/** @param end see `performance.now()` */
function leftUntil(end: number): number {
  return Math.max(0, end - performance.now());
}

function lateNotice({ lost, lostCount }: KeptVariables): string[] {
  if (lostCount === 0) return [];
  const late = `these variables could not be stored within ${PICKLE_MS / 1000} s, and are lost with the kernel`;
  return [`${late}: ${namesOf(lost, lostCount)}`];
}

const NOTHING: KeptVariables = { kept: [], keptCount: 0, lost: [], lostCount: 0 };
