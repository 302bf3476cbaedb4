import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { freePort } from '../../src/temporal/free-port.ts';
import { ApiClient } from './api-client.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

/** The server as people start it: a process of its own, with its own embedded Temporal. */
export class ServerProcess {
  readonly api: ApiClient;
  readonly #env: Record<string, string>;
  #child: ChildProcess | undefined;
  #output = '';

  private constructor(env: Record<string, string>) {
    this.#env = env;
    this.api = new ApiClient(`http://127.0.0.1:${env['EVERTURN_PORT']}`);
  }

  /** Does not start it yet. */
  static async prepare(dataDir: string, env: Record<string, string>): Promise<ServerProcess> {
    const { PATH = '', HOME = '', XDG_CACHE_HOME } = process.env;
    return new ServerProcess({
      PATH,
      HOME,
      ...(XDG_CACHE_HOME && { XDG_CACHE_HOME }),
      EVERTURN_DATA: dataDir,
      EVERTURN_PORT: String(await freePort()),
      LOG_LEVEL: 'warn',
      ...env,
    });
  }

  /** What it has printed so far, on both outputs. */
  get output(): string {
    return this.#output;
  }

  /** Settles when it listens. */
  async start(): Promise<void> {
    const child = spawn(process.execPath, [MAIN, 'start'], { env: this.#env, stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = child;
    this.#output = '';
    const listening = Promise.withResolvers<void>();
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.#output += text;
        if (this.#output.includes('Everturn listens')) listening.resolve();
      });
    }
    child.once('exit', (code) => listening.reject(new Error(`it exited with ${code}:\n${this.#output}`)));
    await listening.promise;
  }

  /** As a crash does: nothing is told to anybody. The embedded Temporal stays behind. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  /** As an operator does. Gives the exit code. */
  async stop(): Promise<number | null> {
    return this.#end('SIGTERM');
  }

  async #end(signal: NodeJS.Signals): Promise<number | null> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return child?.exitCode ?? null;
    const exited = once(child, 'exit');
    child.kill(signal);
    await exited;
    return child.exitCode;
  }
}
