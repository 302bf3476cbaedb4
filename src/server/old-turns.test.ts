import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { defaultDataConverter } from '@temporalio/common';
import { pino } from 'pino';
import { expect, onTestFinished, test, vi } from 'vitest';
import { Catalog } from '../features/catalog.ts';
import { OLDEST_RULES } from '../core/history.ts';
import { EngineError } from '../engine/errors.ts';
import { TurnNotFound } from '../engine/turn-log-reader.ts';
import { EncryptionKeyMissing } from '../encryption/cipher.ts';
import { refuseOldTurns } from './old-turns.ts';
import type { Services } from './services.ts';

/** Starts of a worker while these turns are open: their rules, or why they cannot be read. */
async function starts(open: Record<string, number | undefined | Error>, buildId?: string) {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-catalog-'));
  const silent = pino({ level: 'silent' });
  const catalog = await Catalog.open({ kind: 'sqlite', file: path.join(folder, 'catalog.db'), sync: 'normal' }, silent);
  onTestFinished(async () => {
    await catalog.close();
    await rm(folder, { recursive: true, force: true });
  });
  const read: string[] = [];
  const ended: string[] = [];
  const logged: string[] = [];
  const workflowService = {
    terminateWorkflowExecution: ({ workflowExecution }: { workflowExecution: { workflowId: string } }) => {
      ended.push(workflowExecution.workflowId);
      return Promise.resolve();
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the members that the function uses
  const services = {
    catalog,
    client: {
      workflow: { list: () => Object.keys(open).map((turnId) => ({ workflowId: `turn/${turnId}` })) },
      connection: { workflowService },
      options: { namespace: 'n', loadedDataConverter: { ...defaultDataConverter, payloadCodecs: [] } },
    },
    logs: {
      start: (turnId: string) => {
        read.push(turnId);
        const rules = open[turnId];
        return rules instanceof Error ? Promise.reject(rules) : Promise.resolve({ turnId, rules });
      },
    },
    config: { temporal: { taskQueue: 'q', buildId } },
    log: pino({ level: 'error' }, { write: (line) => void logged.push(JSON.parse(line).turnId) }),
  } as unknown as Services;
  const start = async (endOldTurns = false): Promise<string[]> => {
    read.splice(0);
    await refuseOldTurns(services, { endOldTurns });
    return [...read];
  };
  return { start, catalog, open, ended, logged };
}

test('open turns are read by the first start, and again after a version of older rules has run', async () => {
  // A start in the millisecond of an older one counts as one before it: the open turns are read once more.
  vi.useFakeTimers({ toFake: ['Date'], now: 1 });
  onTestFinished(() => void vi.useRealTimers());
  const { start, catalog, open } = await starts({ a: OLDEST_RULES });
  expect(await start()).toEqual(['a']);
  open['b'] = undefined;
  expect(await start()).toEqual([]);
  await catalog.marks.raise(`begun turns of rules ${OLDEST_RULES - 1}`, new Date().toISOString());
  await expect(start()).rejects.toThrow('are open, and this version does not continue them: b.');
  delete open['b'];
  vi.setSystemTime(2);
  expect(await start()).toEqual(['a']);
  expect(await start()).toEqual([]);
});

test('turns that cannot be read do not stop a start, and are read again by the next one', async () => {
  const { start, open, ended, logged } = await starts({
    sealed: new EncryptionKeyMissing('k1'),
    odd: new Error('it is odd'),
    gone: new TurnNotFound('gone'),
    old: undefined,
  });
  await expect(start()).rejects.toThrow('are open, and this version does not continue them: old.');
  expect(await start(true)).toEqual(['sealed', 'odd', 'gone', 'old']);
  expect(ended).toEqual(['turn/old']);
  delete open['old'];
  logged.splice(0);
  expect(await start()).toEqual(['sealed', 'odd', 'gone']);
  expect(logged).toEqual(['sealed', 'odd']);
  open['sealed'] = open['odd'] = OLDEST_RULES;
  await start();
  expect(await start()).toEqual([]);
});

test('an outage stops a start', async () => {
  const { start } = await starts({ a: new EngineError('unavailable', 'the catalog is unavailable') });
  await expect(start()).rejects.toThrow('the catalog is unavailable');
});

test('a worker of a version of its own starts beside older turns, and ends them only on request', async () => {
  const { start, ended } = await starts({ old: undefined }, '1.1');
  expect(await start()).toEqual([]);
  expect(ended).toEqual([]);
  expect(await start(true)).toEqual(['old']);
  expect(ended).toEqual(['turn/old']);
});
