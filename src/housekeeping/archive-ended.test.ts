import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Client } from '@temporalio/client';
import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { Catalog } from '../features/catalog.ts';
import { TurnNotFound } from '../engine/turn-log-reader.ts';
import { archiveEnded } from './archive-ended.ts';

type Options = Parameters<typeof archiveEnded>[0];

const now = new Date();

/** The marks of a catalog before the first sweep. */
const marks = { get: () => Promise.resolve(undefined), raise: () => Promise.resolve() };

test('the first sweep of a worker lists the turns that ended after the mark', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-catalog-'));
  const log = pino({ level: 'silent' });
  const catalog = await Catalog.open({ kind: 'sqlite', file: path.join(folder, 'catalog.db'), sync: 'normal' }, log);
  onTestFinished(async () => {
    await catalog.close();
    await rm(folder, { recursive: true, force: true });
  });
  const ended = [
    { workflowId: 'turn/old', closedAt: '2026-11-01T10:00:00.000Z' },
    { workflowId: 'turn/new', closedAt: '2026-11-02T10:00:00.000Z' },
    { workflowId: 'turn/newest', closedAt: '2026-11-03T10:00:00.000Z' },
  ];
  const listed: string[] = [];
  function* list({ query }: { query: string }): Generator<{ workflowId: string }> {
    const since = /CloseTime > '([^']*)'/.exec(query)?.[1] ?? '';
    const before = /CloseTime < '([^']*)'/.exec(query)?.[1] ?? at;
    for (const { workflowId, closedAt } of ended) {
      if (closedAt <= since || closedAt > at || closedAt > before) continue;
      listed.push(workflowId);
      yield { workflowId };
    }
  }
  const failing = new Set<string>();
  const options: Options = {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the members that the test uses
    client: { workflow: { list } } as unknown as Client,
    taskQueue: 'q',
    catalog,
    archiveTurn: (turnId) => (failing.has(turnId) ? Promise.reject(new Error('unreadable')) : Promise.resolve(true)),
    log,
  };
  const stop = new AbortController();
  let at = '';
  /** The turns that the first sweep of a worker lists. */
  const start = async (time: string): Promise<string[]> => {
    at = time;
    listed.splice(0);
    await archiveEnded(options, { last: undefined, now: new Date(time), stop: stop.signal });
    return [...listed];
  };
  expect(await start('2026-11-01T12:00:00.000Z')).toEqual(['turn/old']);
  // Even one that has just ended: a catalog that was restored may not have it.
  expect(await start('2026-11-02T10:00:10.000Z')).toEqual(['turn/new']);
  // Listed again, because visibility may lag behind the end of a turn.
  expect(await start('2026-11-02T12:00:00.000Z')).toEqual(['turn/new']);
  // A turn that could not be archived is found by every worker that starts.
  failing.add('newest');
  expect(await start('2026-11-03T12:00:00.000Z')).toEqual(['turn/newest']);
  expect(await start('2026-11-04T12:00:00.000Z')).toEqual(['turn/newest']);
  failing.clear();
  expect(await start('2026-11-05T12:00:00.000Z')).toEqual(['turn/newest']);
  expect(await start('2026-11-06T12:00:00.000Z')).toEqual([]);
  // A sweep that was stopped does not advance the mark.
  ended.push({ workflowId: 'turn/last', closedAt: '2026-11-07T10:00:00.000Z' });
  stop.abort();
  await start('2026-11-08T12:00:00.000Z');
  expect(await catalog.marks.get('archived turns')).toBe('2026-11-06T11:50:00.000Z');
});

test('a turn that cannot be archived does not block the others', async () => {
  const ids = ['turn/a', 'turn/b', 'other/x', 'turn/c', 'turn/d'];
  const archived: string[] = [];
  let readable = false;
  const options: Options = {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the members that the test uses
    client: { workflow: { list: () => ids.map((workflowId) => ({ workflowId })) } } as unknown as Client,
    taskQueue: 'q',
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
    catalog: {
      marks,
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
  const swept = await archiveEnded(options, { last: undefined, now, stop });
  expect(swept.failed).toEqual(['b']);
  expect(archived).toEqual(['a', 'c']);
  readable = true;
  ids.splice(0);
  expect((await archiveEnded(options, { last: swept, now, stop })).failed).toEqual([]);
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
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the members that the test uses
    client: { workflow: { list } } as unknown as Client,
    taskQueue: 'q',
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
    catalog: { marks, turns: { get: () => Promise.resolve(undefined) } } as unknown as Catalog,
    archiveTurn: (turnId) => {
      if (turnId === 'b') stop.abort();
      return Promise.resolve(true);
    },
    log: pino({ level: 'silent' }),
  };
  await archiveEnded(options, { last: undefined, now, stop: stop.signal });
  expect(listed).toEqual(['turn/a', 'turn/b', 'turn/c']);
});

test('a deleted turn is not retried, and no line is logged for a turn that another worker has archived', async () => {
  const lines: string[] = [];
  const options: Options = {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the members that the test uses
    client: {
      workflow: { list: () => ['turn/a', 'turn/b', 'turn/c'].map((workflowId) => ({ workflowId })) },
    } as unknown as Client,
    taskQueue: 'q',
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
    catalog: { marks, turns: { get: () => Promise.resolve(undefined) } } as unknown as Catalog,
    archiveTurn: (turnId) =>
      turnId === 'a' ? Promise.reject(new TurnNotFound(turnId)) : Promise.resolve(turnId === 'c'),
    log: pino({ level: 'info' }, { write: (line) => void lines.push(line) }),
  };
  const stop = new AbortController().signal;
  expect((await archiveEnded(options, { last: undefined, now, stop })).failed).toEqual([]);
  expect(lines.map((line) => /"msg":"([^"]*)"/.exec(line)?.[1])).toEqual([
    'a turn was deleted before it was archived',
    'a turn that its worker had not archived was archived',
  ]);
});
