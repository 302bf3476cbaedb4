import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm, utimes } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { keptPort } from './kept-port.ts';
import { killAtEnd } from './reaper.ts';
import { S3_PROGRAM } from './requirements.ts';

export const BUCKET = 'everturn-test';
export const CREDENTIALS = { AWS_ACCESS_KEY_ID: 'everturn', AWS_SECRET_ACCESS_KEY: 'secret-of-everturn' };

/** An S3 server with a bucket, whose objects are files. A test may kill, restart and suspend it. Needs versitygw. */
export class TestS3 {
  readonly endpoint: string;
  readonly #port: number;
  readonly #folder: string;
  #process: ChildProcess | undefined;

  private constructor(port: number, folder: string) {
    this.#port = port;
    this.#folder = folder;
    this.endpoint = `http://127.0.0.1:${port}`;
  }

  static async start(): Promise<TestS3> {
    const folder = await mkdtemp(path.join(tmpdir(), 'everturn-s3-'));
    const s3 = new TestS3(await keptPort(), folder);
    await mkdir(s3.folderOf(''), { recursive: true });
    await s3.up();
    return s3;
  }

  /** The settings of an Everturn that stores its blobs here. */
  envFor(prefix: string): Record<string, string> {
    return {
      EVERTURN_BLOBS: `s3://${BUCKET}/${prefix}`,
      AWS_ENDPOINT_URL_S3: this.endpoint,
      AWS_REGION: 'us-east-1',
      ...CREDENTIALS,
    };
  }

  /** The folder with the files of the objects below a prefix. */
  folderOf(prefix: string): string {
    return path.join(this.#folder, 'objects', BUCKET, prefix);
  }

  /** The names of the objects below a prefix. */
  async objects(prefix: string): Promise<string[]> {
    return readdir(this.folderOf(prefix)).catch(() => []);
  }

  /** Makes an object appear to have been stored days ago. */
  async age(key: string): Promise<void> {
    const then = new Date(Date.now() - 3 * 86_400_000);
    await utimes(this.folderOf(key), then, then);
  }

  /** Starts it, at the same address and with the same objects as before. */
  async up(): Promise<void> {
    const { AWS_ACCESS_KEY_ID: ROOT_ACCESS_KEY, AWS_SECRET_ACCESS_KEY: ROOT_SECRET_KEY } = CREDENTIALS;
    const args = ['--port', `127.0.0.1:${this.#port}`, '--quiet', 'posix', path.join(this.#folder, 'objects')];
    const child = killAtEnd(
      spawn(S3_PROGRAM, args, { env: { ROOT_ACCESS_KEY, ROOT_SECRET_KEY }, stdio: ['ignore', 'ignore', 'pipe'] }),
    );
    this.#process = child;
    let output = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (output += text));
    const failed = Promise.withResolvers<never>();
    child.once('error', failed.reject);
    child.once('exit', () => failed.reject(new Error(`versitygw did not start:\n${output}`)));
    await Promise.race([this.#listens(), failed.promise]);
    failed.promise.catch(() => undefined);
  }

  /** Kills it, as a crash does. */
  async down(): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }

  /** Suspends it: connections stay open, but nothing is answered. */
  hang(): void {
    this.#process?.kill('SIGSTOP');
  }

  goOn(): void {
    this.#process?.kill('SIGCONT');
  }

  async stop(): Promise<void> {
    await this.down();
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** It prints nothing when it is ready. */
  async #listens(): Promise<void> {
    while (!(await isListening(this.#port))) await sleep(20);
  }
}

async function isListening(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  const connected = new Promise<boolean>((resolve) => {
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
  });
  try {
    return await connected;
  } finally {
    socket.destroy();
  }
}
