import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { errorMessage } from '../../../lib/errors.ts';
import type { Prepared } from '../prepared.ts';
import { environmentPython, type BuildStep } from './build-environment.ts';
import { removeUnusedBeside, useEnvironment } from './environment-users.ts';
import { findPython, importAll, NEEDED_PYTHON, probe, type ProcessOptions } from './interpreter.ts';

const LOCK = new URL('requirements.lock', import.meta.url);
const MAX_LOCK_BYTES = 4 * 1024 * 1024;

/** The modules that each kernel can import. */
const MODULES = ['IPython', 'pydantic', 'matplotlib', 'pandas', 'cloudpickle'] as const;

/** The interval of retries after failures: an index may be temporarily unreachable, or a program may get installed. */
const RETRY_MS = 5 * 60_000;

/** An interpreter with the packages that kernels need. */
interface ReadyPython {
  /** The file of the interpreter. */
  python: string;
  /** For example 3.12.4. */
  version: string;
}

interface KernelPythonOptions {
  /** Environments are built in its subfolder `kernels`. */
  cacheDir: string;
  /** An interpreter that is used as it is; unset: an environment is built. */
  python: string | undefined;
  /** A lock file that adds packages to the environment. */
  requirements: string | undefined;
  env: NodeJS.ProcessEnv;
  log: Pick<Logger, 'info' | 'warn'>;
  retryMs?: number;
}

/**
 * The Python of kernels: the operator's interpreter, else a virtual environment from a lock file with hashes. It is
 * found or built in the background: a first build takes minutes, and the server does not wait for it.
 */
export class KernelPython {
  readonly #options: KernelPythonOptions;
  readonly #closing = new AbortController();
  readonly #work: Promise<void>;
  /** After a failure, the attempt is repeated periodically. */
  #state: Prepared<ReadyPython> = { state: 'building' };
  #attempt: Promise<ReadyPython>;

  /** Begins to look for Python. */
  constructor(options: KernelPythonOptions) {
    this.#options = options;
    this.#attempt = this.#provide();
    this.#work = this.#follow();
  }

  state(): Prepared<ReadyPython> {
    return this.#state;
  }

  /** Waits for the first attempt, which may take minutes. @throws Error with the reason of a failure */
  ready(): Promise<ReadyPython> {
    return this.#attempt;
  }

  /** Ends a build. */
  async close(): Promise<void> {
    this.#closing.abort(new Error('the server is stopping'));
    await this.#work;
  }

  /** Repeats failed attempts until one succeeds. Never rejects. */
  async #follow(): Promise<void> {
    const { log, retryMs = RETRY_MS } = this.#options;
    const { signal } = this.#closing;
    for (;;) {
      try {
        const found = await this.#attempt;
        this.#state = { state: 'ready', ...found };
        log.info(found, 'kernels have a Python');
        return;
      } catch (error) {
        if (signal.aborted) return;
        const reason = errorMessage(error);
        // The same failure is logged once.
        if (this.#state.state !== 'failed' || this.#state.reason !== reason) {
          log.warn({ err: error }, `no agent can act in code: ${reason}`);
        }
        this.#state = { state: 'failed', reason };
      }
      await sleep(retryMs, undefined, { signal, ref: false }).catch(() => undefined);
      if (signal.aborted) return;
      const next = this.#provide();
      // Until the outcome of this attempt, `ready` returns the attempt before.
      await next.catch(() => undefined);
      this.#attempt = next;
    }
  }

  async #provide(): Promise<ReadyPython> {
    const { cacheDir, python, requirements, env } = this.#options;
    const options: ProcessOptions = { env, signal: this.#closing.signal };
    if (python !== undefined) return checkedPython(python, options);
    const locks = [await readLock(LOCK), ...(requirements === undefined ? [] : [await readMore(requirements)])];
    const interpreter = await findPython(options);
    const folder = path.join(cacheDir, 'kernels');
    const onStep = (step: BuildStep) => this.#log(step);
    const file = await environmentPython({ ...options, folder, interpreter, locks, modules: MODULES, onStep });
    await this.#removeOthers(path.dirname(path.dirname(file)));
    return { python: file, version: interpreter.version };
  }

  /** Removes other environments to free space. A failure is only logged. */
  async #removeOthers(environment: string): Promise<void> {
    try {
      await useEnvironment(environment);
      await removeUnusedBeside(environment);
    } catch (error) {
      this.#options.log.warn({ err: error }, 'environments of Python that are not used any more could not be removed');
    }
  }

  /** Logs the first build only, not those after failed attempts. */
  #log(step: BuildStep): void {
    if (step === 'creating the environment' && this.#state.state === 'building') {
      this.#options.log.info('building the Python environment of kernels: once, for some minutes');
    }
  }
}

/** @throws Error with the requirement that the operator's interpreter lacks */
async function checkedPython(file: string, options: ProcessOptions): Promise<ReadyPython> {
  const { version, isOld } = await probe(file, options).catch((error: unknown) => {
    throw new Error(`EVERTURN_KERNEL_PYTHON ${file} does not run: ${errorMessage(error)}`);
  });
  if (isOld) throw new Error(`EVERTURN_KERNEL_PYTHON ${file} is Python ${version}, and kernels need ${NEEDED_PYTHON}`);
  await importAll(file, MODULES, options).catch((error: unknown) => {
    const needed = 'install IPython, pydantic 2, matplotlib, pandas and cloudpickle there';
    throw new Error(`EVERTURN_KERNEL_PYTHON ${file} lacks a package: ${errorMessage(error)}: ${needed}`);
  });
  return { python: file, version };
}

async function readMore(file: string): Promise<string> {
  return readLock(file).catch((error: unknown) => {
    throw new Error(`EVERTURN_KERNEL_REQUIREMENTS must be a lock file with hashes: ${errorMessage(error)}`);
  });
}

async function readLock(file: string | URL): Promise<string> {
  const { size } = await stat(file);
  if (size > MAX_LOCK_BYTES)
    throw new Error(`${String(file)} has ${size} bytes, and at most ${MAX_LOCK_BYTES} are read`);
  return readFile(file, 'utf8');
}
