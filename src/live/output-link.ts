import { once } from 'node:events';
import { createConnection, type Socket } from 'node:net';
import path from 'node:path';
import { openFolder } from '../lib/open-folder.ts';
import type { LiveBus, LiveOutput } from './bus.ts';
import { LiveOutputs } from './live-outputs.ts';
import { MAX_MESSAGE_BYTES, SOCKET, socketFolder, type OutputMessage } from './output-messages.ts';

/** What publishes the outputs of calls. */
export type OutputBus = Pick<LiveBus, 'publishOutput' | 'finishOutput'>;

/** How long a host waits before it connects again, in milliseconds. */
const RECONNECT_MS = 1_000;

/** A server that is this far behind is disconnected: the outputs are sent anew when it is connected again. */
const MAX_UNSENT_BYTES = 4 * MAX_MESSAGE_BYTES;

/**
 * Carries the outputs of calls from a kernel host to the server that runs everything in one process, which may restart
 * while the host continues. Nothing waits for it: each connection begins with the whole outputs so far, so that earlier
 * losses are repaired.
 */
export class OutputLink implements OutputBus {
  readonly #dataDir: string;
  readonly #outputs = new LiveOutputs();
  #socket: Socket | undefined;
  #isConnecting = false;
  #reconnect: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(dataDir: string) {
    this.#dataDir = dataDir;
  }

  publishOutput(output: LiveOutput): void {
    if (this.#outputs.add(output) !== 'grown') return;
    if (this.#socket) this.#send(this.#socket, { output });
    else this.#connect();
  }

  finishOutput({ turnId, id, attempt }: Pick<LiveOutput, 'turnId' | 'id' | 'attempt'>): void {
    this.#outputs.delete(id, attempt);
    if (this.#socket) this.#send(this.#socket, { ended: { turnId, id, attempt } });
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#reconnect);
    this.#socket?.destroy();
  }

  #connect(): void {
    if (this.#isConnecting || this.#reconnect || this.#isClosed) return;
    this.#isConnecting = true;
    this.#open()
      .catch(() => this.#connectLater())
      .finally(() => (this.#isConnecting = false));
  }

  async #open(): Promise<void> {
    await using folder = await openFolder(socketFolder(this.#dataDir));
    const socket = createConnection(path.join(folder.place, SOCKET)).unref();
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    if (this.#isClosed) socket.destroy();
    if (socket.destroyed) throw new Error('it was disconnected');
    socket.once('close', () => {
      this.#socket = undefined;
      this.#connectLater();
    });
    this.#socket = socket;
    for (const output of this.#outputs.whole()) this.#send(socket, { output });
  }

  /** Connects after a pause, unless there is nothing to send then. */
  #connectLater(): void {
    if (this.#isClosed) return;
    this.#reconnect ??= setTimeout(() => {
      this.#reconnect = undefined;
      if (this.#outputs.characters > 0) this.#connect();
    }, RECONNECT_MS).unref();
  }

  #send(socket: Socket, message: OutputMessage): void {
    if (socket.writableLength > MAX_UNSENT_BYTES) socket.destroy();
    else socket.write(`${JSON.stringify(message)}\n`);
  }
}
