import { once } from 'node:events';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { makeFolder } from '../lib/make-folder.ts';
import { openFolder } from '../lib/open-folder.ts';
import type { LiveOutput } from './bus.ts';
import { InProcessBus } from './in-process-bus.ts';
import { OutputLink } from './output-link.ts';
import { listenForOutputs } from './output-listener.ts';
import { SOCKET, socketFolder } from './output-messages.ts';
import { eventually } from '../../test/support/eventually.ts';

const log = pino({ level: 'silent' });

function piece(from: number, text: string): LiveOutput {
  const place = { turnId: 'turn_1', threadId: 'main', toolCallId: 'call_1', id: 'evt_1', after: 1, attempt: 1 };
  return { ...place, from, parts: [{ channel: 'stdout', text }] };
}

/** A data folder whose path is longer than that of a socket may be. */
async function dataFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-link-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const dataDir = path.join(folder, 'x'.repeat(120));
  await makeFolder(dataDir, 'EVERTURN_DATA');
  return dataDir;
}

/** A server, and what late readers of the turn get from it. */
async function server(dataDir: string) {
  const bus = new InProcessBus();
  const stop = await listenForOutputs({ dataDir, bus, log });
  const held = (): string[] => {
    const texts: string[] = [];
    const ignore = (): void => undefined;
    const leave = bus.subscribe('turn_1', {
      frame: ignore,
      snapshot: ignore,
      retrying: ignore,
      output: ({ parts }) => texts.push(parts.map(({ text }) => text).join('')),
      lost: ignore,
    });
    bus.requestSnapshots('turn_1');
    leave();
    return texts;
  };
  return { stop, held };
}

function link(dataDir: string): OutputLink {
  const made = new OutputLink(dataDir);
  onTestFinished(() => made.close());
  return made;
}

test('outputs reach a server that starts later, and one that is started again, whole', async () => {
  const dataDir = await dataFolder();
  const host = link(dataDir);
  host.publishOutput(piece(0, 'a'));
  const first = await server(dataDir);
  await eventually(() => expect(first.held()).toEqual(['a']));
  host.publishOutput(piece(1, 'b'));
  await eventually(() => expect(first.held()).toEqual(['ab']));
  await first.stop();
  host.publishOutput(piece(2, 'c'));
  const second = await server(dataDir);
  onTestFinished(second.stop);
  await eventually(() => expect(second.held()).toEqual(['abc']));
  host.finishOutput(piece(0, ''));
  await eventually(() => expect(second.held()).toEqual([]));
});

test('a server keeps nothing of a host that is lost', async () => {
  const dataDir = await dataFolder();
  const { stop, held } = await server(dataDir);
  onTestFinished(stop);
  const host = link(dataDir);
  host.publishOutput(piece(0, 'a'));
  await eventually(() => expect(held()).toEqual(['a']));
  host.close();
  await eventually(() => expect(held()).toEqual([]));
});

test('only processes of this user reach the socket, and one that sends something else is disconnected', async () => {
  const dataDir = await dataFolder();
  const { stop, held } = await server(dataDir);
  onTestFinished(stop);
  const place = socketFolder(dataDir);
  const modes = await Promise.all([stat(place), stat(path.join(place, SOCKET))]);
  expect(modes.map(({ mode }) => mode & 0o777)).toEqual([0o700, 0o600]);
  const folder = await openFolder(place);
  onTestFinished(() => folder[Symbol.asyncDispose]());
  const forged = { ...piece(0, 'a'), parts: [{ channel: 'other', text: 'a' }] };
  for (const line of ['nothing', JSON.stringify({ output: forged }), 'x'.repeat(3 * 1024 * 1024)]) {
    const socket = createConnection(path.join(folder.place, SOCKET)).on('error', () => undefined);
    socket.resume().write(`${line}\n`);
    await once(socket, 'close');
  }
  expect(held()).toEqual([]);
});
