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

/** What a host can start kernels with, once it is known. */
export type KernelEnvironment = Prepared<{ wall: Wall; pythonVersion: string }>;

/** What a sandbox is created with. */
interface SandboxOpening {
  /** The owner of the session. */
  subject: string;
  workspace: CodeActions['workspace'];
}

interface SandboxHostOptions {
  /** The task queue of this process alone. */
  name: string;
  catalog: { sandboxes: Sandboxes; kernelHosts: KernelHosts };
  /** How many kernels run at once. */
  capacity: number;
  blobs: BlobStore;
  /** How many of one subject. */
  perSubject: () => number;
  /** The variables of this process that agents may give their code. */
  variables: HostVariables;
  environment: () => KernelEnvironment;
  /** What code may reach at most. */
  network: HostNetwork;
  /** For its metrics. */
  registry: Registry;
  log: Logger;
}

/** The first user of a sandbox, where the host is root: no other program uses ids this high. */
const FIRST_UID = 1_879_048_192;

/** Others may pass through a folder, and not list it. The umask would apply to the mode of a new one. */
const PASSED_THROUGH = 0o711;

/** A sandbox whose kernels rest for so long is filled again from the blob store when it is needed. */
const UNUSED_MS = 86_400_000;

/** How often the sandboxes of deleted sessions, and of those that another host has taken over, are removed. */
const SWEEP_MS = 30_000;

/** The sandboxes that are on this process, and what the catalog knows of it. */
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
    // What is kept of a sandbox is in the blob store.
    const folder = await makeHostFolder();
    await chmod(folder.path, PASSED_THROUGH);
    const host = new SandboxHost(options, folder);
    await host.#say();
    await options.catalog.kernelHosts.sweep(Date.now());
    host.#every(HOST_SEEN_MS, () => host.#say());
    host.#every(HOST_SEEN_MS, () => host.#noteSandboxes());
    host.#every(HOST_SEEN_MS, () => host.#resetKernels());
    host.#every(SWEEP_MS, () => host.#sweep());
    return host;
  }

  get name(): string {
    return this.#options.name;
  }

  /** @throws Error that says why this host starts no kernels */
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
   * The sandbox of a session. One that is here already finds out by itself, with its next use, whether it has moved.
   * @throws Error if the session has none on this host
   */
  async sandbox(sessionId: string, opening: SandboxOpening): Promise<SessionSandbox> {
    const known = this.#sandboxes.get(sessionId);
    if (known) return known;
    const creating = this.#create(sessionId, opening);
    this.#sandboxes.set(sessionId, creating);
    // One that could not be created is tried again with the next call.
    creating.catch(() => this.#sandboxes.delete(sessionId));
    return creating;
  }

  /** It stops soon: sessions open no sandbox on it any more. */
  async drain(): Promise<void> {
    this.#isDraining = true;
    await this.#say();
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
    // One that could not be filled is left.
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

  async #say(): Promise<void> {
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

  /** Kernels also end between calls. */
  async #noteSandboxes(): Promise<void> {
    const opened = await Promise.allSettled(this.#sandboxes.values());
    // One that has moved to another host is swept.
    await Promise.allSettled(opened.map(async (one) => one.status === 'fulfilled' && one.value.note()));
  }

  /** What clients have had reset is done before the next call in any case; this frees the memory. */
  async #resetKernels(): Promise<void> {
    const sessions = await this.#options.catalog.sandboxes.withResets(this.name);
    const resets = [...sessions].map(async (sessionId) => {
      const sandbox = await this.#sandboxes.get(sessionId)?.catch(() => undefined);
      await sandbox?.reset();
    });
    // What fails is repeated with the next round.
    await Promise.allSettled(resets);
  }

  async #sweep(): Promise<void> {
    // Those that are opened meanwhile are not in what the catalog says.
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
        this.#options.log.warn(
          { err: errorMessage(error) },
          'the kernel host cannot write to the catalog; it tries again',
        ),
      );
    };
    this.#timers.push(setInterval(run, ms));
  }
}
