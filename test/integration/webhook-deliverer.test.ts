import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { Catalog } from '../../src/features/catalog.ts';
import { isCatalogUnavailable } from '../../src/catalog/database.ts';
import { loadConfig } from '../../src/config.ts';
import { InProcessBus } from '../../src/live/in-process-bus.ts';
import { Metrics } from '../../src/telemetry/metrics.ts';
import { newSecret, signedHeaders } from '../../src/features/webhooks/signature.ts';
import { WebhookDeliverer } from '../../src/features/webhooks/webhook-deliverer.ts';
import type { WebhookFormat } from '../../src/features/webhooks/webhook-format.ts';
import { eventually } from '../support/eventually.ts';
import { createTestDatabase, type TestDatabase } from '../support/test-database.ts';
import { WebhookReceiver } from '../support/webhook-receiver.ts';

const log = pino({ level: 'silent' });
const FORMAT: WebhookFormat = {
  messageOf: ({ session_id: session, sequence }) => Promise.resolve({ session, sequence }),
  headersOf: signedHeaders,
};
const NOW = '2026-11-02T10:00:00.000Z';

let folder: string;
let database: TestDatabase;
let receiver: WebhookReceiver;
let catalogs: Catalog[];
let deliverers: WebhookDeliverer[];
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-deliverer-'));
  database = await createTestDatabase(folder);
  receiver = await WebhookReceiver.start();
  [catalogs, deliverers] = [[], []];
});
afterEach(async () => {
  for (const deliverer of deliverers) await deliverer.stop();
  for (const catalog of catalogs) await catalog.close();
  await receiver.stop();
  await database.close();
  await rm(folder, { recursive: true, force: true });
});

async function open(): Promise<Catalog> {
  const catalog = await Catalog.open(loadConfig({ DATABASE_URL: database.url }).database, log);
  catalogs.push(catalog);
  return catalog;
}

/** A worker's deliverer, whose messages have only the ids and sessions of the deliveries. */
async function work(): Promise<WebhookDeliverer> {
  const catalog = await open();
  const bus = new InProcessBus();
  catalog.outbox.onChange((change) => bus.hint(`change:${change}`));
  const deliverer = new WebhookDeliverer({
    catalog,
    bus,
    metrics: new Metrics(),
    log,
    allowPrivateUrls: () => true,
    formats: { sessions: FORMAT, 'agents-v2': FORMAT },
  });
  deliverers.push(deliverer);
  return deliverer;
}

async function register(catalog: Catalog, url = receiver.url): Promise<string> {
  const id = `whk_${Math.random().toString(36).slice(2)}`;
  const webhook = {
    id,
    face: 'sessions' as const,
    url,
    events: ['turn.done' as const],
    agent_name: null,
    secret: newSecret(),
    created_at: NOW,
  };
  expect(await catalog.webhooks.insert(webhook, 10)).toBe(true);
  return id;
}

/** Commits the end of a turn, as the archive does. */
async function endTurn(catalog: Catalog, sessionId: string): Promise<void> {
  for (;;) {
    try {
      await catalog.outbox.transaction((_db, emit) => {
        emit({ type: 'turn.done', sessionId, turnId: 't', agentName: null });
        return Promise.resolve();
      });
      return;
    } catch (error) {
      if (!isCatalogUnavailable(error)) throw error;
    }
  }
}

function received(): { session: string; sequence: number }[] {
  return receiver.requests.map(({ body }) => JSON.parse(body) as { session: string; sequence: number });
}

test('several workers share the deliveries, each of which is sent once, in the order of its session', async () => {
  const catalog = await open();
  await register(catalog);
  await Promise.all([work(), work(), work()]);
  const sessions = ['a', 'b', 'c', 'd'];
  for (let turn = 0; turn < 10; turn++) {
    await Promise.all(sessions.map((session) => endTurn(catalog, session)));
    for (const deliverer of deliverers) deliverer.wake();
  }
  await eventually(() => expect(receiver.requests).toHaveLength(40));
  for (const session of sessions) {
    const numbers = received().flatMap((one) => (one.session === session ? one.sequence : []));
    expect(numbers).toHaveLength(10);
    expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  }
  await eventually(async () => {
    expect(await database.rows.selectFrom('delivery_lanes').selectAll().execute()).toEqual([]);
  });
  expect(new Set(receiver.ids).size).toBe(40);
  expect(receiver.requests).toHaveLength(40);
});

test('a receiver that hangs in all of its sessions does not delay another one', async () => {
  const catalog = await open();
  const hanging = await WebhookReceiver.start();
  // However slow the machine is, no attempt ends by itself, and is followed by another one.
  const timeout = vi.spyOn(AbortSignal, 'timeout').mockImplementation(() => new AbortController().signal);
  onTestFinished(() => void timeout.mockRestore());
  hanging.next.push(...Array.from({ length: 50 }, () => () => undefined));
  await register(catalog, hanging.url);
  await register(catalog);
  for (let session = 0; session < 20; session++) await endTurn(catalog, `s${session}`);
  const deliverer = await work();
  await eventually(() => expect(receiver.requests).toHaveLength(20));
  // Each process waits for a few answers of one receiver at once.
  await eventually(() => expect(hanging.requests.length).toBeGreaterThanOrEqual(8));
  await deliverer.stop();
  expect(hanging.requests).toHaveLength(8);
  await hanging.stop();
});

test('a delivery that fails for a day is given up, and the next one of its session follows', async () => {
  const catalog = await open();
  const id = await register(catalog);
  await endTurn(catalog, 's');
  await endTurn(catalog, 's');
  const [first] = await catalog.deliveries.list(id, 2, 1);
  const yesterday = new Date(Date.now() - 25 * 3_600_000).toISOString();
  await database.rows
    .updateTable('deliveries')
    .set({ created_at: yesterday })
    .where('id', '=', first?.id ?? '')
    .execute();
  receiver.next.push((response) => response.writeHead(503).end());
  await work();
  await eventually(async () => {
    const found = await catalog.deliveries.list(id, undefined, 10);
    expect(found.map(({ status, response_status: code, error }) => [status, code, error])).toEqual([
      ['delivered', 204, null],
      ['failed', 503, 'answered with HTTP 503'],
    ]);
  });
  await catalog.deliveries.forget(new Date(Date.now() - 24 * 3_600_000).toISOString());
  expect(await catalog.deliveries.list(id, undefined, 10)).toHaveLength(1);
});

test('a worker whose lease has ended records nothing, and a lane with a newer delivery is not removed', async () => {
  const catalog = await open();
  const id = await register(catalog);
  await endTurn(catalog, 's');
  const claim = (lease: string, now: string) =>
    catalog.deliveries.claim(id, { now, until: '2999-01-01T00:00:00.000Z', limit: 5, lease });
  const [slow] = await claim('slow', '2999-01-01T00:00:00.000Z');
  expect(await claim('other', new Date().toISOString())).toEqual([]);
  const [fast] = await claim('fast', '2999-01-01T00:00:00.000Z');
  if (!slow || !fast) throw new Error('the lane was not taken');
  const delivery = await catalog.deliveries.next(slow);
  if (!delivery) throw new Error('there is no delivery');
  const attempt = { at: NOW, responseStatus: 200, error: null };
  const delivered = { attempt, status: 'delivered' as const, until: NOW };
  expect(await catalog.deliveries.record(slow, delivery, delivered)).toBe(false);
  expect(await catalog.deliveries.next(slow)).toEqual(delivery);
  expect(await catalog.deliveries.record(fast, delivery, delivered)).toBe(true);
  await endTurn(catalog, 's');
  await catalog.deliveries.release(fast, { last: delivery.sequence, dueAt: NOW });
  expect(await catalog.deliveries.nextDue()).toBe(NOW);
  expect(await catalog.deliveries.next(fast)).toMatchObject({ sequence: delivery.sequence + 1 });
});

test('nothing is written for turns if no webhook is registered', async () => {
  const catalog = await open();
  await endTurn(catalog, 's');
  expect(await database.rows.selectFrom('counters').selectAll().execute()).toEqual([]);
  expect(await database.rows.selectFrom('deliveries').selectAll().execute()).toEqual([]);
});
