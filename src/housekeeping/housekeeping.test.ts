import type { Client } from '@temporalio/client';
import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { Catalog } from '../catalog/catalog.ts';
import { archiveEnded } from './housekeeping.ts';

type Options = Parameters<typeof archiveEnded>[0];

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
      return Promise.resolve();
    },
    log: pino({ level: 'silent' }),
  };
  const stop = new AbortController().signal;
  expect(await archiveEnded(options, { since: undefined, again: [], stop })).toEqual(['b']);
  expect(archived).toEqual(['a', 'c']);
  readable = true;
  ids.splice(0);
  expect(await archiveEnded(options, { since: new Date(), again: ['b'], stop })).toEqual([]);
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
      return Promise.resolve();
    },
    log: pino({ level: 'silent' }),
  };
  await archiveEnded(options, { since: undefined, again: [], stop: stop.signal });
  expect(listed).toEqual(['turn/a', 'turn/b', 'turn/c']);
});
