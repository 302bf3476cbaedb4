import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { Catalog } from '../features/catalog.ts';
import { ownerColumns } from '../catalog/sessions.ts';
import { createdAtOf } from './start-turn.ts';
import { newId } from './new-id.ts';
import { TurnLimits } from './turn-limits.ts';

const ANN = { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' } as const;

let catalog: Catalog;
/** What happens after the index has counted its turns, and before the count arrives. */
let whileCounting: () => Promise<void>;

beforeEach(async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-turn-limits-'));
  const log = pino({ level: 'silent' });
  catalog = await Catalog.open({ kind: 'sqlite', file: path.join(folder, 'catalog.db'), sync: 'normal' }, log);
  whileCounting = () => Promise.resolve();
  onTestFinished(async () => {
    await catalog.close();
    await rm(folder, { recursive: true });
  });
});

function limitedTo(turnsPerSubject: number): TurnLimits {
  return new TurnLimits({
    catalog: {
      turns: {
        countOpen: async (which) => {
          const counted = await catalog.turns.countOpen(which);
          await whileCounting();
          return counted;
        },
      },
    },
    limits: () => ({ turns: Infinity, turnsPerSubject }),
    config: { turnSeconds: 60 },
  });
}

/** A new session, as `admit` takes it. */
async function session(): Promise<{ id: string; subject_id: string }> {
  const now = new Date().toISOString();
  const id = newId('ses');
  await catalog.sessions.insert({
    id,
    type: 'session',
    agent_name: 'agent',
    agent_version: null,
    spec_hash: await catalog.agents.putSpec({ model: { name: 'm' } }, now),
    title: null,
    ...ownerColumns(ANN),
    metadata: null,
    created_at: now,
    updated_at: now,
  });
  return { id, subject_id: ANN.subjectId };
}

async function request({ id: sessionId }: { id: string }): Promise<void> {
  const id = newId('turn');
  await catalog.turns.request({ id, session_id: sessionId, created_at: createdAtOf(id) });
}

test('a turn that is in the index before its admission is released counts once', async () => {
  const limits = limitedTo(2);
  const [first, second, third] = [await session(), await session(), await session()];
  await limits.admit(first);
  await request(first);
  const release = await limits.admit(second);
  await request(second);
  await expect(limits.admit(third)).rejects.toThrow('2 of your turns run, and no more may');
  release();
  await expect(limits.admit(third)).rejects.toThrow('2 of your turns run, and no more may');
});

test('a turn that enters the index while another request counts is not missed', async () => {
  const limits = limitedTo(1);
  const [first, second] = [await session(), await session()];
  const release = await limits.admit(first);
  whileCounting = async () => {
    await request(first);
    release();
  };
  await expect(limits.admit(second)).rejects.toThrow('1 of your turns run, and no more may');
});
