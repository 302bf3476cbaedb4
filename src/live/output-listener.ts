import { once } from 'node:events';
import { chmod, mkdir, rm } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import path from 'node:path';
import type { Logger } from 'pino';
import { parsedJson } from '../lib/json.ts';
import { LineReader } from '../lib/line-reader.ts';
import { openFolder } from '../lib/open-folder.ts';
import type { LiveOutput } from './bus.ts';
import { MAX_MESSAGE_BYTES, outputMessage, SOCKET, socketFolder } from './output-messages.ts';
import type { OutputBus } from './output-link.ts';

interface ListenerOptions {
  dataDir: string;
  /** The bus of the readers. */
  bus: OutputBus;
  log: Logger;
}

/** There is one host, and for a moment the one that it replaces. */
const MAX_CONNECTIONS = 4;

/**
 * Receives the outputs of calls from the kernel host of a data folder, on a socket that only processes of this user can
 * reach. Returns the function that stops it.
 */
export async function listenForOutputs({ dataDir, bus, log }: ListenerOptions): Promise<() => Promise<void>> {
  const parent = socketFolder(dataDir);
  await mkdir(parent, { recursive: true });
  await chmod(parent, 0o700);
  const file = path.join(parent, SOCKET);
  // The socket of a server that was killed.
  await rm(file, { force: true });
  const folder = await openFolder(parent);
  const connections = new Set<Socket>();
  const server = createServer((socket) => {
    connections.add(socket);
    socket.once('close', () => connections.delete(socket));
    receive(socket, { bus, log });
  });
  server.maxConnections = MAX_CONNECTIONS;
  const stop = async (): Promise<void> => {
    server.close();
    for (const socket of connections) socket.destroy();
    await folder[Symbol.asyncDispose]();
    await rm(file, { force: true });
  };
  try {
    server.listen(path.join(folder.place, SOCKET));
    await once(server, 'listening');
    await chmod(file, 0o600);
  } catch (error) {
    await stop();
    throw error;
  }
  return stop;
}

/** Passes the outputs of a host on. Outputs that the host has not ended are dropped with the connection. */
function receive(socket: Socket, { bus, log }: Pick<ListenerOptions, 'bus' | 'log'>): void {
  const open = new Map<string, Pick<LiveOutput, 'turnId' | 'id' | 'attempt'>>();
  const reader = new LineReader(MAX_MESSAGE_BYTES, (line, isWhole) => {
    if (socket.destroyed) return;
    const { data: message } = outputMessage.safeParse(isWhole ? parsedJson(line) : undefined);
    if (!message) {
      log.warn('the kernel host sent an invalid output message and was disconnected');
      socket.destroy();
    } else if ('ended' in message) {
      open.delete(message.ended.id);
      bus.finishOutput(message.ended);
    } else {
      const { turnId, id, attempt } = message.output;
      open.set(id, { turnId, id, attempt });
      bus.publishOutput(message.output);
    }
  });
  socket.on('error', () => undefined);
  socket.on('data', (chunk: Buffer) => reader.push(chunk));
  socket.once('close', () => {
    for (const output of open.values()) bus.finishOutput(output);
  });
}
