import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createClient } from '@redis/client';
import type { RedisClient } from '../../src/lib/redis.ts';
import { keptPort } from './kept-port.ts';
import { killAtEnd } from './reaper.ts';

/** A Redis server for a test, which may stop, restart and suspend it. Needs redis-server (Debian's package). */
export class TestRedis {
  readonly url: string;
  readonly #port: number;
  #process: ChildProcess | undefined;

  private constructor(port: number) {
    this.#port = port;
    this.url = `redis://127.0.0.1:${port}`;
  }

  static async start(): Promise<TestRedis> {
    const redis = new TestRedis(await keptPort());
    await redis.up();
    return redis;
  }

  /** Starts it, empty, at the same address as before. */
  async up(): Promise<void> {
    const args = ['--port', String(this.#port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'];
    const child = killAtEnd(spawn('redis-server', args, { stdio: ['ignore', 'pipe', 'inherit'] }));
    this.#process = child;
    const ready = Promise.withResolvers<void>();
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      if (output.includes('Ready to accept connections')) ready.resolve();
    });
    child.once('error', ready.reject);
    child.once('exit', () => ready.reject(new Error(`redis-server did not start:\n${output}`)));
    await ready.promise;
  }

  /** Kills it, as a crash does. */
  async down(): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }

  /** Empties it, and closes all connections: as a failover to an empty replica. */
  async flush(): Promise<void> {
    const client = createClient({ url: this.url });
    await client.connect();
    await client.flushAll();
    for (const type of ['normal', 'pubsub']) await client.sendCommand(['CLIENT', 'KILL', 'TYPE', type]);
    client.destroy();
  }

  /** Closes one connection; its client reconnects. */
  async cut(client: RedisClient): Promise<void> {
    if (!client.isReady) return;
    const ended = new Promise((resolve) => void client.once('reconnecting', resolve));
    await client
      .sendCommand(['CLIENT', 'KILL', 'ID', String(await client.clientId()), 'SKIPME', 'no'])
      .catch(() => undefined);
    await ended;
  }

  /** Suspends it: connections stay open, but nothing is answered. */
  hang(): void {
    this.#process?.kill('SIGSTOP');
  }

  goOn(): void {
    this.#process?.kill('SIGCONT');
  }
}
