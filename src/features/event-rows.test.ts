import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { expect, onTestFinished, test } from 'vitest';
import { Catalog } from './catalog.ts';

const AT = '2026-11-29T08:00:00.000Z';

test('an event is delivered to the webhooks that are registered for it, but not to disabled ones', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-outbox-'));
  const database = { kind: 'sqlite' as const, file: path.join(folder, 'catalog.db'), sync: 'normal' as const };
  const catalog = await Catalog.open(database, pino({ level: 'silent' }));
  onTestFinished(async () => {
    await catalog.close();
    await rm(folder, { recursive: true, force: true });
  });
  const registered = {
    face: 'sessions',
    url: 'https://x.test',
    agent_name: null,
    secret: 's',
    created_at: AT,
  } as const;
  const webhooks = {
    told: { events: ['turn.done'] },
    disabled: { events: ['turn.done'], disabled: 1 },
    'of another event': { events: ['action.created'] },
    'of another agent': { events: ['turn.done'], agent_name: 'other' },
  } as const;
  for (const [id, { events, ...webhook }] of Object.entries(webhooks)) {
    await catalog.webhooks.insert({ ...registered, ...webhook, id, events: [...events] }, 10);
  }
  await catalog.outbox.transaction((_, emit) =>
    Promise.resolve(emit({ type: 'turn.done', sessionId: 'ses_1', turnId: 'turn_1', agentName: 'helper' })),
  );
  const due = { now: new Date().toISOString(), until: AT, limit: 10, lease: 'l' };
  for (const id of Object.keys(webhooks)) {
    expect(await catalog.deliveries.claim(id, due), id).toHaveLength(id === 'told' ? 1 : 0);
  }
});
