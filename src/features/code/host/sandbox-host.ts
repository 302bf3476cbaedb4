import { chmod } from 'node:fs/promises';
import path from 'node:path';
import type { Logger } from 'pino';
import type { Registry } from 'prom-client';
import type { BlobStore } from '../../../blobs/blob-store.ts';
import type { Isolation } from '../../../core/records/sandbox.ts';
import { errorMessage } from '../../../lib/errors.ts';
import type { CodeActions } from '../../../spec/code-actions.ts';
import { KernelMetrics } from '../../../telemetry/kernel-metrics.ts';
import type { HostNetwork } from '../kernel/sandbox-network.ts';
import type { Wall } from '../kernel/wall.ts';
import { HOST_SEEN_MS, type KernelHosts } from '../kernel-host-rows.ts';
import type { Prepared } from '../prepared.ts';
import type { Sandboxes } from '../sandbox-rows.ts';
import type { KernelHostState } from '../tables.ts';
import { makeHostFolder, type HostFolder } from './host-folder.ts';
import { kernelVariables, type HostVariables } from './kernel-variables.ts';
import { Seats } from './seats.ts';
import { SessionSandbox } from './session-sandbox.ts';

/** The wall and the Python with which a host starts kernels, once they are ready. */
export type KernelEnvironment = Prepared<{ wall: Wall; pythonVersion: string }>;

/** The parameters of a new sandbox. */
interface SandboxOpening {
  /** The owner of the session. */
  subject: string;
  workspace: CodeActions['workspace'];
}

interface SandboxHostOptions {
  /** The task queue of this process alone. */
  name: string;
  catalog: { sandboxes: Sandboxes; kernelHosts: KernelHosts };
  /** The maximum number of concurrent kernels. */
  capacity: number;
  blobs: BlobStore;
  /** The maximum number of concurrent kernels of one subject. */
  perSubject: () => number;
  /** The variables of this process that agents may pass to their code. */
  variables: HostVariables;
  environment: () => KernelEnvironment;
  /** The hosts that code may reach at most. */
  network: HostNetwork;
  /** For its metrics. */
  registry: Registry;
  log: Logger;
}

/** The first user of a sandbox, where the host is root: no other program uses ids this high. */
const FIRST_UID = 1_879_048_192;

/** Other users may traverse a folder, but not list it. Set by `chmod`, since the umask would apply to a new folder. */
const PASSED_THROUGH = 0o711;

/** A sandbox that is unused for this time is closed, and restored from the blob store when it is needed again. */
const UNUSED_MS = 86_400_000;

/** How often the sandboxes of deleted sessions, and those that another host has taken over, are removed. */
const SWEEP_MS = 30_000;

/** The sandboxes of this process, and its rows in the catalog. */
export class SandboxHost {
  readonly metrics: KernelMetrics;
  readonly #options: SandboxHostOptions;
  readonly #folder: HostFolder;
  readonly #seats: Seats;
  /** By their sessions. */
  readonly #sandboxes = new Map<string, Promise<SessionSandbox>>();
  readonly #timers: NodeJS.Timeout[] = [];
  #opened = 0;
  #isDraining = false;

  private constructor(options: SandboxHostOptions, folder: HostFolder) {
    this.#options = options;
    this.#folder = folder;
    this.#seats = new Seats({ ...options, onEvict: () => this.metrics.evictions.inc() });
    this.metrics = new KernelMetrics(options.registry, () => this.#kernelStatuses());
  }

  static async start(options: SandboxHostOptions): Promise<SandboxHost> {
    // A temporary folder, since the durable parts of sandboxes are in the blob store.
    const folder = await makeHostFolder();
    await chmod(folder.path, PASSED_THROUGH);
    const host = new SandboxHost(options, folder);
    await host.#reportState();
    await options.catalog.kernelHosts.sweep(Date.now());
    host.#every(HOST_SEEN_MS, () => host.#reportState());
    host.#every(HOST_SEEN_MS, () => host.#noteSandboxes());
    host.#every(HOST_SEEN_MS, () => host.#resetKernels());
    host.#every(SWEEP_MS, () => host.#sweep());
    return host;
  }

  get name(): string {
    return this.#options.name;
  }

  /** @throws Error with the reason why this host starts no kernels */
  environment(): Extract<KernelEnvironment, { state: 'ready' }> {
    const environment = this.#options.environment();
    if (environment.state === 'ready') return environment;
    throw new Error(environment.state === 'failed' ? environment.reason : 'its environment of Python is being built');
  }

  get network(): HostNetwork {
    return this.#options.network;
  }

  get isolation(): Isolation {
    return this.environment().wall.isolation;
  }

  /**
   * The sandbox of a session. If it is open here already, its next use checks whether it has moved to another host.
   * @throws Error if the session has none on this host
   */
  async sandbox(sessionId: string, opening: SandboxOpening): Promise<SessionSandbox> {
    const known = this.#sandboxes.get(sessionId);
    if (known) return known;
    const creating = this.#create(sessionId, opening);
    this.#sandboxes.set(sessionId, creating);
    // If the creation fails, the next call repeats it.
    creating.catch(() => this.#sandboxes.delete(sessionId));
    return creating;
  }

  /** Called before the host stops: sessions open no more sandboxes on it. */
  async drain(): Promise<void> {
    this.#isDraining = true;
    await this.#reportState();
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    await Promise.all([...this.#sandboxes.keys()].map((sessionId) => this.#close(sessionId)));
    await this.#folder.remove();
    await this.#options.catalog.kernelHosts.remove(this.name).catch(() => undefined);
  }

  async #create(sessionId: string, { subject, workspace }: SandboxOpening): Promise<SessionSandbox> {
    const row = await this.#options.catalog.sandboxes.get(sessionId);
    if (!row || row.host !== this.name) throw new Error('the sandbox of the session is on another host');
    // A new folder for each attempt: a sandbox that could not be filled leaves its folder behind.
    const folder = path.join(this.#folder.path, `${row.id}-${this.#opened}`);
    const uid = this.environment().wall.hasOwnUser ? FIRST_UID + this.#opened : undefined;
    this.#opened += 1;
    const { blobs, catalog, network, variables } = this.#options;
    const sandbox = await SessionSandbox.create({
      id: row.id,
      sessionId,
      subject,
      folder,
      uid,
      blobs,
      network,
      seats: this.#seats,
      rows: catalog.sandboxes,
      host: this.name,
      wall: () => this.environment().wall,
      variables: (given) => kernelVariables(given, variables),
      onStart: (seconds) => this.metrics.starts.observe(seconds),
    });
    await sandbox.fill(row, workspace);
    return sandbox;
  }

  async #kernelStatuses() {
    const opened = await Promise.allSettled(this.#sandboxes.values());
    const kernels = opened.flatMap((one) => (one.status === 'fulfilled' ? one.value.kernels : []));
    return kernels.flatMap(({ status }) => (status === 'stopped' ? [] : [status]));
  }

  async #close(sessionId: string): Promise<void> {
    const opened = this.#sandboxes.get(sessionId);
    this.#sandboxes.delete(sessionId);
    const sandbox = await opened?.catch(() => undefined);
    await sandbox?.close();
  }

  async #reportState(): Promise<void> {
    const environment = this.#options.environment();
    const state: KernelHostState = this.#isDraining ? 'draining' : environment.state;
    await this.#options.catalog.kernelHosts.seen({
      host: this.name,
      state,
      reason: environment.state === 'failed' ? environment.reason : null,
      isolation: environment.state === 'ready' ? environment.wall.isolation : null,
      kernels: this.#seats.taken,
      capacity: this.#options.capacity,
      seen_at: new Date().toISOString(),
    });
  }

  /** Updates the rows of the sandboxes, since kernels also end between calls. */
  async #noteSandboxes(): Promise<void> {
    const opened = await Promise.allSettled(this.#sandboxes.values());
    // The sweep removes sandboxes that have moved to another host.
    await Promise.allSettled(opened.map(async (one) => one.status === 'fulfilled' && one.value.note()));
  }

  /** Resets kernels for clients, to free the memory. The next call would do it in any case. */
  async #resetKernels(): Promise<void> {
    const sessions = await this.#options.catalog.sandboxes.withResets(this.name);
    const resets = [...sessions].map(async (sessionId) => {
      const sandbox = await this.#sandboxes.get(sessionId)?.catch(() => undefined);
      await sandbox?.reset();
    });
    // The next round repeats failed resets.
    await Promise.allSettled(resets);
  }

  async #sweep(): Promise<void> {
    // Listed before the query, whose result lacks sandboxes that are opened meanwhile.
    const here = [...this.#sandboxes.keys()];
    const own = await this.#options.catalog.sandboxes.on(this.name);
    const unusedSince = Date.now() - UNUSED_MS;
    for (const sessionId of here) {
      const sandbox = await this.#sandboxes.get(sessionId)?.catch(() => undefined);
      if (!own.has(sessionId) || (sandbox && !sandbox.isUsedSince(unusedSince))) await this.#close(sessionId);
    }
  }

  #every(ms: number, work: () => Promise<void>): void {
    const run = (): void => {
      work().catch((error: unknown) =>
        this.#options.log.warn({ err: errorMessage(error) }, 'the kernel host cannot write to the catalog; retrying'),
      );
    };
    this.#timers.push(setInterval(run, ms));
  }
}
