import { spawn } from 'node:child_process';
import { open } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import { backoffMs } from '../lib/backoff.ts';
import { errorMessage } from '../lib/errors.ts';
import { sha256 } from '../lib/hash.ts';
import { isRunning } from '../lib/processes.ts';
import type { ProvisionedTemporal } from '../temporal-server/provision.ts';
import { runningKernelHost } from './kernel-host-record.ts';
import packageJson from '../../package.json' with { type: 'json' };

interface KernelHostProcessOptions {
  config: Pick<Config, 'dataDir' | 'database' | 'shutdownSeconds' | 'kernels'>;
  /** The variables with the settings. */
  env: NodeJS.ProcessEnv;
  temporal: Pick<ProvisionedTemporal, 'connectionOptions' | 'namespace'>;
  log: Logger;
}

/** How often the server checks whether the host still runs. */
const WATCH_MS = 1_000;
const RESTART_BACKOFF = { first: 1_000, max: 60_000 };
/** How long a host may take to write its record. */
const START_MS = 30_000;
/** In addition to the time that running calls get. */
const STOP_MARGIN_MS = 5_000;

/**
 * The kernel host of a server that runs everything: a process of its own, so that kernels survive the server. It is started
 * when an agent first needs it, and one that a killed server has left is adopted.
 */
export class KernelHostProcess {
  readonly #options: KernelHostProcessOptions;
  readonly #env: NodeJS.ProcessEnv;
  readonly #identity: string;
  #watch: Promise<void> | undefined;
  #problem: string | undefined;
  readonly #stopping = new AbortController();

  constructor(options: KernelHostProcessOptions) {
    this.#options = options;
    const { config, env, temporal } = options;
    const { database } = config;
    this.#env = {
      ...env,
      EVERTURN_DATA: config.dataDir,
      TEMPORAL_ADDRESS: temporal.connectionOptions.address,
      TEMPORAL_NAMESPACE: temporal.namespace,
      DATABASE_URL: database.kind === 'sqlite' ? `sqlite:${database.file}` : database.url,
    };
    // The password that it has, if any, is in the variable.
    delete this.#env['DATABASE_URL_FILE'];
    this.#identity = sha256(JSON.stringify([packageJson.version, settingsOf(this.#env, config.kernels.variables)]));
  }

  /** Starts the host, and starts it again whenever it ends, until `stop`. Returns why that has failed, if it has. */
  ensure(): string | undefined {
    if (!this.#stopping.signal.aborted) this.#watch ??= this.#keepRunning();
    return this.#problem;
  }

  /** Adopts the host that a killed server has left; one with other settings is ended. */
  async adopt(): Promise<void> {
    const host = await runningKernelHost(this.#options.config.dataDir);
    if (host?.identity === this.#identity) this.ensure();
    else await this.#end();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#watch;
    await this.#end();
  }

  async #keepRunning(): Promise<void> {
    const { config, log } = this.#options;
    const { signal } = this.#stopping;
    for (let failures = 0; !signal.aborted;) {
      if (!(await runningKernelHost(config.dataDir))) {
        try {
          await this.#start();
          failures = 0;
          this.#problem = undefined;
        } catch (error) {
          failures += 1;
          this.#problem = errorMessage(error);
          log.warn(this.#problem);
        }
      }
      const pause = failures === 0 ? WATCH_MS : backoffMs(failures - 1, RESTART_BACKOFF);
      await sleep(pause, undefined, { signal }).catch(() => undefined);
    }
  }

  async #start(): Promise<void> {
    const { dataDir } = this.#options.config;
    const logFile = path.join(dataDir, 'kernel-host.log');
    const output = await open(logFile, 'a');
    try {
      const main = path.join(import.meta.dirname, '..', 'main.ts');
      const child = spawn(process.execPath, [main, 'kernel-host', '--identity', this.#identity], {
        // Not in the terminal's process group: it stops when the worker has.
        detached: true,
        env: this.#env,
        stdio: ['ignore', output.fd, output.fd],
      });
      child.unref();
      let ended: string | undefined;
      child.once('error', (error) => (ended = error.message));
      child.once('exit', (code, signal) => (ended = signal ?? `exit code ${code}`));
      // Also while it stops: a host that is being started has no record yet, by which it could be ended.
      for (const end = performance.now() + START_MS; performance.now() < end; await sleep(50)) {
        if (await runningKernelHost(dataDir)) return;
        if (ended !== undefined) break;
      }
      throw new Error(`the kernel host has not started (${ended ?? 'it says nothing'}); its log is ${logFile}`);
    } finally {
      await output.close();
    }
  }

  async #end(): Promise<void> {
    const { dataDir, shutdownSeconds } = this.#options.config;
    const host = await runningKernelHost(dataDir);
    if (!host) return;
    const deadline = performance.now() + shutdownSeconds * 1000 + STOP_MARGIN_MS;
    for (let signal: NodeJS.Signals | 0 = 'SIGTERM'; await isRunning(host); signal = 0) {
      try {
        process.kill(host.pid, performance.now() < deadline ? signal : 'SIGKILL');
      } catch {
        // It has ended since.
      }
      await sleep(20);
    }
  }
}

/** The variables that are settings, and those that agents may give their code. */
function settingsOf(env: NodeJS.ProcessEnv, variables: readonly string[]): [string, string | undefined][] {
  const names = Object.keys(env).filter(
    (name) => /^(EVERTURN_|TEMPORAL_|DATABASE_URL|AWS_|REDIS_URL|LOG_LEVEL)/.test(name) || variables.includes(name),
  );
  return names.toSorted().map((name) => [name, env[name]]);
}
