import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { INHERITED_ENV } from './inherited-env.ts';
import { keptPort } from './kept-port.ts';
import { ApiClient } from './api-client.ts';
import { killAtEnd, killUsersAtEnd } from './reaper.ts';

const run = promisify(execFile);

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

/** Everturn, or one of its parts, in its own process as in production, by default with its own embedded Temporal. */
export class ServerProcess {
  readonly api: ApiClient;
  readonly #main: string;
  readonly #command: string;
  readonly #env: Record<string, string>;
  #child: ChildProcess | undefined;
  #output = '';
  #isReady = false;

  private constructor(main: string, command: string, env: Record<string, string>) {
    this.#main = main;
    this.#command = command;
    this.#env = env;
    this.api = new ApiClient(`http://127.0.0.1:${env['EVERTURN_PORT']}`);
  }

  /** Prepares the process without starting it, by default one of this checkout. */
  static async prepare(
    dataDir: string,
    env: Record<string, string>,
    command: 'start' | 'api' | 'worker' | 'kernel-host' = 'start',
    main = MAIN,
  ): Promise<ServerProcess> {
    // An embedded Temporal outlives the process that started it.
    killUsersAtEnd(dataDir);
    const port = String(await keptPort());
    return new ServerProcess(main, command, {
      ...INHERITED_ENV,
      EVERTURN_DATA: dataDir,
      EVERTURN_PORT: port,
      EVERTURN_WORKER_PORT: port,
      LOG_LEVEL: 'warn',
      // A host would build an environment of Python.
      EVERTURN_KERNELS: '0',
      ...env,
    });
  }

  /** Its output so far, standard output and standard error. */
  get output(): string {
    return this.#output;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Whether it listens, or polls for work. */
  get isReady(): boolean {
    return this.#isReady && this.isRunning;
  }

  /** Starts it, from now on with these settings too. Resolves when it listens, or polls for work. */
  async start(env: Record<string, string> = {}, options: string[] = []): Promise<void> {
    // The running process could not be ended any more.
    if (this.isRunning) throw new Error(`everturn ${this.#command} runs already`);
    this.#isReady = false;
    Object.assign(this.#env, env);
    const child = killAtEnd(
      spawn(process.execPath, [this.#main, this.#command, ...options], {
        env: this.#env,
        stdio: ['ignore', 'pipe', 'pipe'],
      }),
    );
    this.#child = child;
    this.#output = '';
    const listening = Promise.withResolvers<void>();
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#output += text;
        if (/^Everturn.* (listens on|polls|serves) /m.test(this.#output)) listening.resolve();
      });
    }
    child.once('exit', (code) => listening.reject(new Error(`it exited with ${code}:\n${this.#output}`)));
    await listening.promise;
    this.#isReady = true;
  }

  /** Kills it, as a crash does. The embedded Temporal survives. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  /** Its resident memory, in bytes. */
  async memory(): Promise<number> {
    const { stdout } = await run('ps', ['-o', 'rss=', '-p', String(this.#child?.pid)]);
    return Number(stdout) * 1024;
  }

  /** Suspends it until `goOn`; its connections stay open. */
  pause(): void {
    this.#child?.kill('SIGSTOP');
  }

  goOn(): void {
    this.#child?.kill('SIGCONT');
  }

  /** Stops it as an operator does. Returns the exit code. */
  async stop(): Promise<number | null> {
    return this.#end('SIGTERM');
  }

  async #end(signal: NodeJS.Signals): Promise<number | null> {
    const child = this.#child;
    if (!child || !this.isRunning) return child?.exitCode ?? null;
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
    return child.exitCode;
  }
}
