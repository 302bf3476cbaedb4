import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { keptPort } from './kept-port.ts';
import { ApiClient } from './api-client.ts';
import { killAtEnd, killUsersAtEnd } from './reaper.ts';

const run = promisify(execFile);

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

/** Everturn as people start it, all of it or a part: a process of its own, by default with its own embedded Temporal. */
export class ServerProcess {
  readonly api: ApiClient;
  readonly #command: string;
  readonly #env: Record<string, string>;
  #child: ChildProcess | undefined;
  #output = '';
  #isReady = false;

  private constructor(command: string, env: Record<string, string>) {
    this.#command = command;
    this.#env = env;
    this.api = new ApiClient(`http://127.0.0.1:${env['EVERTURN_PORT']}`);
  }

  /** Does not start it yet. */
  static async prepare(
    dataDir: string,
    env: Record<string, string>,
    command: 'start' | 'api' | 'worker' = 'start',
  ): Promise<ServerProcess> {
    // An embedded Temporal outlives the process that started it.
    killUsersAtEnd(dataDir);
    const { PATH = '', HOME = '', XDG_CACHE_HOME } = process.env;
    const port = String(await keptPort());
    return new ServerProcess(command, {
      PATH,
      HOME,
      ...(XDG_CACHE_HOME && { XDG_CACHE_HOME }),
      EVERTURN_DATA: dataDir,
      EVERTURN_PORT: port,
      EVERTURN_WORKER_PORT: port,
      LOG_LEVEL: 'warn',
      ...env,
    });
  }

  /** What it has printed so far, on both outputs. */
  get output(): string {
    return this.#output;
  }

  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Whether it listens, or polls for work. */
  get isReady(): boolean {
    return this.#isReady && this.isRunning;
  }

  /** From here on with these settings too. Settles when it listens, or polls for work. */
  async start(env: Record<string, string> = {}): Promise<void> {
    // Nobody could end the other one any more.
    if (this.isRunning) throw new Error(`everturn ${this.#command} runs already`);
    this.#isReady = false;
    Object.assign(this.#env, env);
    const child = killAtEnd(
      spawn(process.execPath, [MAIN, this.#command], { env: this.#env, stdio: ['ignore', 'pipe', 'pipe'] }),
    );
    this.#child = child;
    this.#output = '';
    const listening = Promise.withResolvers<void>();
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#output += text;
        if (/^Everturn.* (listens on|polls) /m.test(this.#output)) listening.resolve();
      });
    }
    child.once('exit', (code) => listening.reject(new Error(`it exited with ${code}:\n${this.#output}`)));
    await listening.promise;
    this.#isReady = true;
  }

  /** As a crash does: nothing is told to anybody. The embedded Temporal stays behind. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  /** What it has in memory, in bytes. */
  async memory(): Promise<number> {
    const { stdout } = await run('ps', ['-o', 'rss=', '-p', String(this.#child?.pid)]);
    return Number(stdout) * 1024;
  }

  /** Nothing of it moves until `goOn`; its connections stay. */
  pause(): void {
    this.#child?.kill('SIGSTOP');
  }

  goOn(): void {
    this.#child?.kill('SIGCONT');
  }

  /** As an operator does. Gives the exit code. */
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
