import type { Client } from '@temporalio/client';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { Catalog } from '../catalog/catalog.ts';
import { TurnNotFound } from '../logs/turn-logs.ts';
import { archiveEnded } from './archive-ended.ts';

type Options = Parameters<typeof archiveEnded>[0];

const now = new Date();

test('a turn that can not be archived does not keep the others from the archive', async () => {
  const ids = ['turn/a', 'turn/b', 'other/x', 'turn/c', 'turn/d'];
  const archived: string[] = [];
  let readable = false;
  const options: Options = {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as much of one as is used here
    client: { workflow: { list: () => ids.map((workflowId) => ({ workflowId })) } } as unknown as Client,
    taskQueue: 'q',
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
    catalog: {
      turns: { get: (id: string) => Promise.resolve(id === 'd' ? { archived: 1 } : undefined) },
    } as unknown as Catalog,
    archiveTurn: (turnId) => {
      if (turnId === 'b' && !readable) return Promise.reject(new Error('unreadable'));
      archived.push(turnId);
      return Promise.resolve(true);
    },
    log: pino({ level: 'silent' }),
  };
  const stop = new AbortController().signal;
  expect(await archiveEnded(options, { since: undefined, again: [], now, stop })).toEqual(['b']);
  expect(archived).toEqual(['a', 'c']);
  readable = true;
  ids.splice(0);
  expect(await archiveEnded(options, { since: now, again: ['b'], now, stop })).toEqual([]);
  expect(archived).toEqual(['a', 'c', 'b']);
});

test('a sweep that is stopped lists no further turns', async () => {
  const stop = new AbortController();
  const listed: string[] = [];
  function* list(): Generator<{ workflowId: string }> {
    for (const workflowId of ['turn/a', 'turn/b', 'turn/c', 'turn/d']) {
      listed.push(workflowId);
      yield { workflowId };
    }
  }
  const options: Options = {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as much of one as is used here
    client: { workflow: { list } } as unknown as Client,
    taskQueue: 'q',
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
    catalog: { turns: { get: () => Promise.resolve(undefined) } } as unknown as Catalog,
    archiveTurn: (turnId) => {
      if (turnId === 'b') stop.abort();
      return Promise.resolve(true);
    },
    log: pino({ level: 'silent' }),
  };
  await archiveEnded(options, { since: undefined, again: [], now, stop: stop.signal });
  expect(listed).toEqual(['turn/a', 'turn/b', 'turn/c']);
});

test('a turn that was deleted is done with, and one that others have archived is not said to be archived', async () => {
  const lines: string[] = [];
  const options: Options = {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as much of one as is used here
    client: {
      workflow: { list: () => ['turn/a', 'turn/b', 'turn/c'].map((workflowId) => ({ workflowId })) },
    } as unknown as Client,
    taskQueue: 'q',
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
    catalog: { turns: { get: () => Promise.resolve(undefined) } } as unknown as Catalog,
    archiveTurn: (turnId) =>
      turnId === 'a' ? Promise.reject(new TurnNotFound(turnId)) : Promise.resolve(turnId === 'c'),
    log: pino({ level: 'info' }, { write: (line) => void lines.push(line) }),
  };
  const stop = new AbortController().signal;
  expect(await archiveEnded(options, { since: undefined, again: [], now, stop })).toEqual([]);
  expect(lines.map((line) => /"msg":"([^"]*)"/.exec(line)?.[1])).toEqual([
    'a turn was deleted before it was archived',
    'a turn that its session had not archived was archived',
  ]);
});
