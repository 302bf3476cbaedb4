import { randomUUID } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import type { BlobStore } from '../../../blobs/blob-store.ts';
import type { CallToolInput } from '../../../core/history.ts';
import { ROOT_THREAD } from '../../../core/records/threads.ts';
import { retryWhileUnavailable } from '../../../engine/retry.ts';
import { NEVER_ABORTED } from '../../../lib/abort.ts';
import { hashOf } from '../../../lib/hash.ts';
import type { CodeActions } from '../../../spec/code-actions.ts';
import { CommandRunner } from '../commands/command-runner.ts';
import { SANDBOX_FOLDERS } from '../kernel/bubblewrap.ts';
import { Kernel, type ResourceLimits, type KernelOptions } from '../kernel/kernel.ts';
import type { CellEnd } from '../kernel/running-cell.ts';
import { replaceFolders } from '../kernel/replace-folders.ts';
import { makeSandboxFolders, type SandboxFolders } from '../kernel/sandbox-folders.ts';
import { SandboxNetwork, type HostNetwork } from '../kernel/sandbox-network.ts';
import type { Wall } from '../kernel/wall.ts';
import { KeyedSemaphore } from '../../../lib/keyed-semaphore.ts';
import { resetsOf, type ThreadKernelState } from '../kernel-state.ts';
import { snapshotsOf, type KernelSnapshot } from '../kernel-snapshot.ts';
import type { SandboxRow, Sandboxes } from '../sandbox-rows.ts';
import type { ReadableFiles } from '../workspace/file-tools.ts';
import { WorkspaceFiles } from '../workspace/workspace-files.ts';
import { filesIn, readWorkspaceList, workspaceListOf, type WorkspaceList } from '../workspace/workspace-list.ts';
import { WorkspaceState } from '../workspace/workspace-state.ts';
import type { SkillFile } from '../../skills/skills.ts';
import { removeTree } from './host-folder.ts';
import { SAVED_PACKAGE } from '../saved-tools/saved-tool.ts';
import { parsersAmong, type SavedModules } from '../saved-tools/saved-modules.ts';
import { TOOLS_PACKAGE } from '../tools/code-modules.ts';
import type { CodeToolset } from './code-toolset.ts';
import { HiddenValues, type KernelVariables } from './kernel-variables.ts';
import type { RunningCall } from './code-step.ts';
import type { Seats } from './seats.ts';
import { StoredVariables } from './stored-variables.ts';
import { ThreadKernel } from './thread-kernel.ts';

/** The limits of Everturn's own code that handles the contents of a sandbox. */
const APART_LIMITS: ResourceLimits = { memoryBytes: 1024 ** 3, cpus: 1, processes: 64, outputBytes: 64 * 1024 };
const APART_MS = 30_000;

/** The number of sub-agents whose variables are kept; the oldest stored ones are dropped. */
const MAX_SNAPSHOTS = 20;

/** Limits kernels beside those of cells: they take no seats, and each takes as much memory as one. */
const apart = new KeyedSemaphore(2);
/** By subject, so that one subject cannot block the others. */
const apartOfSubject = new KeyedSemaphore(1);

interface SessionSandboxOptions {
  id: string;
  sessionId: string;
  /** The owner of the session. */
  subject: string;
  /** A folder of its own. */
  folder: string;
  /** Set if the host is root. */
  uid: number | undefined;
  blobs: BlobStore;
  seats: Seats;
  rows: Pick<Sandboxes, 'get' | 'keep' | 'keepSnapshots' | 'note' | 'resetsDone'>;
  /** The name of the host. */
  host: string;
  /** Called with the seconds that the start of a kernel took. */
  onStart: (seconds: number) => void;
  /** @throws Error with the reason why no kernel can be started */
  wall: () => Wall;
  network: HostNetwork;
  /** See `kernelVariables`. */
  variables: (given: Record<string, string>) => KernelVariables;
}

type WorkspaceLimits = Omit<CodeActions['workspace'], 'files' | 'instructions_file'>;

/** The limits and settings of an agent for its kernel. */
type KernelBounds = Pick<RunningCall, 'limits' | 'actions'>;

/** The sandbox of a session on this host: its folders, and a kernel for each thread that runs code. */
export class SessionSandbox {
  readonly id: string;
  readonly files: WorkspaceFiles;
  /** The modules that code imports and cannot change. */
  readonly tools: ReadableFiles;
  /** The skills of the agents, which code reads. */
  readonly skills: ReadableFiles;
  readonly network: SandboxNetwork;
  /** The values that are masked in all texts of the sandbox. */
  readonly hidden = new HiddenValues();
  /** The turn of the last cell of each kernel. */
  readonly lastTurns = new Map<string, string>();
  readonly #options: SessionSandboxOptions;
  readonly #folders: SandboxFolders;
  readonly #kernels = new Map<string, ThreadKernel>();
  /** The bounds of each thread's agent. */
  readonly #wanted = new Map<string, KernelBounds>();
  /** The stored variables of threads; the last stored ones are at the end. */
  readonly #snapshots = new Map<string, KernelSnapshot>();
  /** The workspace in the row of the sandbox with which the folder is up to date. */
  #inRow: string | null = null;
  #stored: WorkspaceList | undefined;
  /** The hashes of the modules in its folder: of MCP tools, and of saved tools. */
  #modules: string | undefined;
  #saved: string | undefined;
  /** The agents whose skills are in its folder, in their state of this turn. */
  #skills: { turnId: string; specs: Set<string> } = { turnId: '', specs: new Set() };
  #commands: CommandRunner | undefined;
  /** Notices for the model about changes by clients. */
  #notices: string[] = [];
  #calls = 0;
  /** The state of calls and kernels that was last written into the row. */
  #noted = '';
  /** The last completed resets. */
  #reset: string | null = null;
  /** One call at a time changes the row with the stored files, or the modules. */
  readonly #alone = new KeyedSemaphore(1);
  /** Milliseconds since 1970. */
  #usedAt = Date.now();

  private constructor(options: SessionSandboxOptions, folders: SandboxFolders) {
    this.id = options.id;
    this.#options = options;
    this.#folders = folders;
    this.network = new SandboxNetwork(options.network, options.folder);
    this.files = new WorkspaceFiles(this.#workspace);
    this.tools = new WorkspaceFiles({ folder: folders.tools, place: SANDBOX_FOLDERS.tools });
    this.skills = new WorkspaceFiles({ folder: folders.skills, place: SANDBOX_FOLDERS.skills });
  }

  static async create(options: SessionSandboxOptions): Promise<SessionSandbox> {
    return new SessionSandbox(options, await makeSandboxFolders(options.folder, options.uid));
  }

  get #workspace() {
    const { uid } = this.#options;
    return { folder: this.#folders.workspace, ...(uid !== undefined && { owner: { uid, gid: uid } }) };
  }

  /** Whether a call or a kernel runs, or a call has ended after this time. */
  isUsedSince(time: number): boolean {
    const hasKernel = [...this.#kernels.values()].some(({ isRunning }) => isRunning);
    return hasKernel || this.#calls > 0 || this.#usedAt > time;
  }

  /** Runs a call in the sandbox, after the changes of clients were applied to its files. */
  async use<T>(limits: WorkspaceLimits, call: () => Promise<T>): Promise<T> {
    this.#calls += 1;
    try {
      const bringUpToDate = () => this.#alone.run('', () => this.#bringUpToDate(limits));
      // Retried, since an outage of the catalog would otherwise end code that has waited for people.
      await retryWhileUnavailable(bringUpToDate, NEVER_ABORTED);
      return await call();
    } finally {
      this.#calls -= 1;
      this.#usedAt = Date.now();
      // The host repeats this periodically.
      await this.note().catch(() => undefined);
    }
  }

  /** Marks the sandbox as used until `code` settles, since code continues after its call has returned. */
  async runsOn(code: Promise<unknown>): Promise<void> {
    this.#calls += 1;
    await code.catch(() => undefined);
    this.#calls -= 1;
    this.#usedAt = Date.now();
    await this.note().catch(() => undefined);
  }

  /** Writes the running calls and kernels into the catalog, if they have changed. */
  async note(): Promise<void> {
    await this.#alone.run('', async () => {
      if (this.#state() !== this.#noted) await this.#note();
    });
  }

  /** Resets the kernels for which clients have requested it. */
  async reset(): Promise<void> {
    const { rows, sessionId } = this.#options;
    const row = await rows.get(sessionId);
    if (row?.resets === null) return;
    await this.#alone.run('', async () => {
      const stopped = await this.#resetKernels(await this.#note());
      for (const kernel of stopped) kernel.startEarly();
      await this.#note();
    });
  }

  /**
   * Restores the stored files, or writes those of the agent if there are none. Called before code runs in the sandbox.
   * @param row the row in the catalog
   */
  async fill(
    row: Pick<SandboxRow, 'workspace' | 'snapshots'>,
    { files, ...limits }: CodeActions['workspace'],
  ): Promise<void> {
    for (const snapshot of snapshotsOf(row)) {
      this.#snapshots.set(snapshot.threadId, snapshot);
      this.lastTurns.set(snapshot.threadId, snapshot.turnId);
    }
    const stored = workspaceListOf(row);
    this.#inRow = row.workspace;
    if (stored) this.#stored = await this.#files(limits).restore(stored);
    else for (const { path, base64 } of files) await this.files.write(path, Buffer.from(base64, 'base64'));
  }

  /** Stores the changed files. Returns the notices that the model has not seen yet. */
  store(limits: WorkspaceLimits): Promise<string[]> {
    return this.#alone.run('', () => this.#store(limits));
  }

  /** Writes the modules of the code's tools, if they have changed. Returns their hash. */
  async writeModules(toolset: CodeToolset, saved: SavedModules): Promise<string> {
    const modules = toolset.modules(parsersAmong(saved.tools));
    await this.#alone.run('modules', async () => {
      const { tools } = this.#folders;
      if (saved.hash !== this.#saved) await replaceFolders(tools, [SAVED_PACKAGE], await saved.files());
      this.#saved = saved.hash;
      if (modules.hash !== this.#modules) await replaceFolders(tools, [TOOLS_PACKAGE], modules.files);
      this.#modules = modules.hash;
    });
    return hashOf([modules.hash, saved.hash]);
  }

  /** Writes the skills of an agent, in their state when a turn first needs them. */
  async writeSkills(
    { turnId, specHash }: Pick<CallToolInput, 'turnId' | 'specHash'>,
    load: () => Promise<SkillFile[]>,
  ): Promise<void> {
    await this.#alone.run('skills', async () => {
      const isSameTurn = this.#skills.turnId === turnId;
      if (isSameTurn && this.#skills.specs.has(specHash)) return;
      const files = await load();
      // In the same turn, the skills of other agents are kept: a sub-agent may run beside its parent's code.
      const before = isSameTurn ? [] : await readdir(this.#folders.skills);
      const names = files.map(([file]) => file.slice(0, file.indexOf('/')));
      await replaceFolders(this.#folders.skills, new Set([...before, ...names]), files);
      this.#skills = { turnId, specs: new Set([...(isSameTurn ? this.#skills.specs : []), specHash]) };
    });
  }

  /** The environment of code and commands. @throws Error: see `kernelVariables` */
  environment({ env: given }: Pick<CodeActions['kernel'], 'env'>): Record<string, string> {
    const { env, hidden } = this.#options.variables(given);
    this.hidden.add(hidden);
    return env;
  }

  /** Hides values of the host that an earlier kernel has had. @throws Error with the name of a missing one */
  #hide(names: readonly string[]): void {
    const given = Object.fromEntries(names.map((name) => [name, `\${${name}}`]));
    this.hidden.add(this.#options.variables(given).hidden);
  }

  /** Runs commands, each with the limits of a kernel. */
  commands(limits: CodeActions['kernel']): CommandRunner {
    const { wall, uid } = this.#options;
    this.#commands ??= new CommandRunner({
      wall: wall(),
      folders: this.#folders,
      uid,
      limits: kernelLimits(limits),
    });
    return this.#commands;
  }

  /** The kernel of a thread. It starts with the limits, environment and network of its agent at that time. */
  kernel(threadId: string, { limits, actions }: KernelBounds): ThreadKernel {
    const known = this.#kernels.get(threadId);
    const bounds = { limits, actions };
    this.#wanted.set(threadId, bounds);
    if (known) return known;
    const { blobs, sessionId, folder: root, uid, seats, subject } = this.#options;
    const current = () => this.#wanted.get(threadId) ?? bounds;
    const variables = new StoredVariables({
      blobs,
      sessionId,
      threadId,
      root,
      uid,
      isOn: () => current().limits.state === 'snapshot',
      snapshot: this.#snapshots.get(threadId),
      hidden: () => this.hidden.names,
      hide: (names) => this.#hide(names),
      write: (snapshot, needed) => this.#alone.run('snapshots', () => this.#keepSnapshot(threadId, snapshot, needed)),
    });
    const [idleMs, suspendMs] = [limits.idle_seconds * 1000, limits.suspend_seconds * 1000];
    const isSubAgent = threadId !== ROOT_THREAD;
    const start = (folder?: string) => this.#start(current(), folder);
    const kernel = new ThreadKernel({ start, variables, seats, subject, isSubAgent, idleMs, suspendMs });
    this.#kernels.set(threadId, kernel);
    return kernel;
  }

  /** Runs code in a kernel of its own, whose workspace contains only these files, named by their numbers. */
  runApart(files: readonly Buffer[], code: string): Promise<CellEnd> {
    const { subject } = this.#options;
    return apartOfSubject.run(subject, () => apart.run('', () => this.#runApart(files, code)));
  }

  async #runApart(files: readonly Buffer[], code: string): Promise<CellEnd> {
    const { uid, folder } = this.#options;
    const root = `${folder}-${randomUUID()}`;
    try {
      const folders = await makeSandboxFolders(root, uid);
      const workspace = new WorkspaceFiles({ ...this.#workspace, folder: folders.workspace });
      for (const [number, content] of files.entries()) await workspace.write(String(number), content);
      const kernel = await this.#startIn(folders, APART_LIMITS, { env: {} });
      try {
        const stop = await kernel.run({ id: root, code }, { timeoutMs: APART_MS, onOutput: () => undefined });
        if (stop.status === 'ended') return stop.end;
        throw new Error('code of Everturn calls no tools');
      } finally {
        await kernel.stop('its code has run');
      }
    } finally {
      await removeTree(root);
    }
  }

  /** Ends the kernels, and removes the folders. */
  async close(): Promise<void> {
    await Promise.all([
      ...[...this.#kernels.values()].map((kernel) => kernel.stop('host_lost')),
      this.#commands?.stop(),
    ]);
    await removeTree(this.#options.folder);
  }

  async #store(limits: WorkspaceLimits): Promise<string[]> {
    const before = this.#stored;
    const list = await this.#files(limits).save(before);
    if (list.blob !== before?.blob) {
      const { rows, sessionId, host } = this.#options;
      const files = filesIn(await readWorkspaceList(this.#options, list));
      const workspace = JSON.stringify(list);
      const change = { sessionId, host, previous: this.#inRow, workspace };
      const isKept = await rows.keep(change, [list.blob, ...files.flatMap(({ blobs }) => blobs)]);
      if (!isKept) return ['changed files are not stored: the sandbox has moved, or a client has changed its files'];
      this.#inRow = workspace;
    }
    this.#stored = list;
    const unknown = list.notices.filter((notice) => !before?.notices.includes(notice));
    return [...this.#notices.splice(0), ...unknown];
  }

  /** Applies the changes of clients, which are then locked out until the last call has ended. */
  async #bringUpToDate(limits: WorkspaceLimits): Promise<void> {
    const row = await this.#note();
    await this.#resetKernels(row);
    if (row.workspace === this.#inRow) return;
    const list = workspaceListOf(row);
    if (list)
      this.#notices.push(...(await this.#files(limits).change(workspaceListOf({ workspace: this.#inRow }), list)));
    this.#inRow = row.workspace;
  }

  /** @param needed the blobs of the snapshot, if they have changed */
  async #keepSnapshot(threadId: string, snapshot: KernelSnapshot | undefined, needed?: string[]): Promise<void> {
    const { rows, sessionId, host } = this.#options;
    const changed = new Map(this.#snapshots);
    changed.delete(threadId);
    if (snapshot) changed.set(threadId, snapshot);
    // The snapshot was dropped for those of other threads, and its blobs are no longer referenced.
    if (snapshot && !needed && !this.#snapshots.has(threadId)) throw new Error('the stored variables were given up');
    const ofSubAgents = [...changed.keys()].filter((thread) => thread !== ROOT_THREAD);
    const dropped = ofSubAgents.slice(0, -MAX_SNAPSHOTS);
    for (const thread of dropped) changed.delete(thread);
    const held = new Map<string, string[]>(dropped.map((thread) => [thread, []]));
    if (needed) held.set(threadId, needed);
    const isKept = await rows.keepSnapshots({ sessionId, host, snapshots: [...changed.values()] }, held);
    if (!isKept) throw new Error('the sandbox of the session is on another host');
    this.#snapshots.clear();
    for (const [thread, kept] of changed) this.#snapshots.set(thread, kept);
  }

  /** Performs resets. Returns the kernels that have to be restarted now. */
  async #resetKernels({ resets }: { resets: string | null }): Promise<ThreadKernel[]> {
    if (resets === null) return [];
    const { rows, sessionId, host } = this.#options;
    // A reset whose end was not recorded is not repeated, since the kernel may have been used since.
    const reset = resets === this.#reset ? [] : resetsOf({ resets });
    this.#reset = resets;
    const stopped = reset.flatMap(({ threadId, stops, ends }) => {
      const kernel = this.#kernels.get(threadId);
      if (ends) this.#forget(threadId);
      return kernel ? [{ kernel, stops }] : [];
    });
    await Promise.all(stopped.map(({ kernel }) => kernel.stop('reset')));
    // The stored variables of kernels on a lost host.
    const left = reset.filter(({ threadId }) => !this.#kernels.has(threadId) && this.#snapshots.has(threadId));
    for (const { threadId } of left) {
      await this.#alone.run('snapshots', () => this.#keepSnapshot(threadId, undefined, []));
    }
    await this.#note();
    await rows.resetsDone({ sessionId, host, resets });
    return stopped.flatMap(({ kernel, stops }) => (stops ? [] : [kernel]));
  }

  #forget(threadId: string): void {
    this.#kernels.delete(threadId);
    this.#wanted.delete(threadId);
    this.lastTurns.delete(threadId);
  }

  async #note(): Promise<{ workspace: string | null; resets: string | null }> {
    const { rows, sessionId, host } = this.#options;
    const state = this.#state();
    const row = await rows.note({ sessionId, host, calls: this.#calls, kernels: JSON.stringify(this.kernels) });
    if (!row) throw new Error('the sandbox of the session is on another host');
    this.#noted = state;
    return row;
  }

  /** The state whose changes are written at once; without the memory, which changes constantly. */
  #state(): string {
    return JSON.stringify([this.#calls, this.kernels.map((state) => ({ ...state, memoryBytes: 0 }))]);
  }

  /** The kernels of its threads. */
  get kernels(): ThreadKernelState[] {
    return [...this.#kernels].flatMap(([threadId, { state }]) => (state ? [{ threadId, ...state }] : []));
  }

  #files({ max_bytes: maxBytes, max_files: maxFiles }: WorkspaceLimits): WorkspaceState {
    const { blobs, sessionId } = this.#options;
    return new WorkspaceState({ ...this.#workspace, blobs, sessionId, limits: { maxBytes, maxFiles } });
  }

  /** @param variables the folder for its variables, if they are to be stored */
  async #start({ limits, actions }: KernelBounds, variables?: string): Promise<Kernel> {
    const since = performance.now();
    const folders = variables === undefined ? this.#folders : { ...this.#folders, variables };
    const network = this.network.allowing(actions.network.allow);
    const kernel = await this.#startIn(folders, kernelLimits(limits), { env: this.environment(limits), network });
    this.#options.onStart((performance.now() - since) / 1000);
    return kernel;
  }

  #startIn(
    folders: SandboxFolders,
    limits: ResourceLimits,
    more: Pick<KernelOptions, 'env' | 'network'>,
  ): Promise<Kernel> {
    const { wall, uid } = this.#options;
    return Kernel.start({ wall: wall(), folders, uid, ...more, hidden: this.hidden, limits });
  }
}

function kernelLimits({
  memory_mb,
  cpus,
  processes,
  output_bytes: outputBytes,
}: KernelBounds['limits']): ResourceLimits {
  return { memoryBytes: memory_mb * 1024 * 1024, cpus, processes, outputBytes };
}
