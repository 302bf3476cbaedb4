import { setImmediate as nextTick } from 'node:timers/promises';
import { fc } from '../support/fast-check.ts';
import { pino, type Logger } from 'pino';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import type { LiveFrame, LiveOutput } from '../../src/live/bus.ts';
import { ReceivedMessages } from '../../src/live/received-messages.ts';
import { RedisBus } from '../../src/live/redis-bus.ts';
import { newId } from '../../src/engine/new-id.ts';
import { openRedis, type Redis } from '../../src/lib/redis.ts';
import { BusTap } from '../support/bus-tap.ts';
import { checkCentralProperty } from '../support/central-property.ts';
import { randomThreads } from '../support/random-threads.ts';
import { TestRedis } from '../support/redis.ts';

/** A worker and an API, each with its own connections to one real Redis. */

let server: TestRedis;
let worker: Redis & { bus: RedisBus };
let api: Redis & { bus: RedisBus };

const SILENT = pino({ level: 'silent' });

async function connect(log: Logger = SILENT): Promise<Redis & { bus: RedisBus }> {
  const redis = await openRedis({ url: server.url, log });
  return { ...redis, bus: new RedisBus({ redis, prefix: 'everturn:test:', log }) };
}

beforeAll(async () => {
  server = await TestRedis.start();
  [worker, api] = await Promise.all([connect(), connect()]);
});
afterAll(async () => {
  worker.close();
  api.close();
  await server.down();
});

/** A message that the worker writes, frame by frame. */
class Writing {
  readonly turnId: string;
  readonly messageId = newId('msg');
  text = '';
  #n = 0;

  constructor(turnId = newId('turn')) {
    this.turnId = turnId;
  }

  say(content: string): void {
    this.text += content;
    worker.bus.publish(this.#frame(content));
  }

  finish(): void {
    worker.bus.finish(this.#frame(''));
  }

  #frame(content: string): LiveFrame {
    const { turnId, messageId } = this;
    const place = { turnId, messageId, threadId: 'main', createdAt: '2026-11-21T08:00:00.000Z', after: 1, attempt: 1 };
    return { ...place, n: this.#n++, delta: { content } };
  }
}

/** The state of a message at a reader at the API. */
class Reading {
  readonly #messages = new ReceivedMessages();
  readonly #writing: Writing;
  lost = 0;

  constructor(writing: Writing) {
    this.#writing = writing;
    const { turnId } = writing;
    const leave = api.bus.subscribe(turnId, {
      frame: (frame) => {
        if (this.#messages.frame(frame).type === 'gap') api.bus.requestSnapshots(turnId);
      },
      snapshot: (snapshot) => this.#messages.snapshot(snapshot),
      retrying: () => undefined,
      output: () => undefined,
      lost: () => {
        this.lost += 1;
        api.bus.requestSnapshots(turnId);
      },
    });
    api.bus.requestSnapshots(turnId);
    onTestFinished(leave);
  }

  get text(): string {
    return this.#messages.get(this.#writing.messageId)?.text.content ?? '';
  }

  async untilCurrent(): Promise<void> {
    const missing = () => this.#writing.text.length - this.text.length;
    await expect.poll(missing, { interval: 5 }).toBe(0);
    expect(this.text === this.#writing.text, 'the same text').toBe(true);
  }
}

test('every cut of a stream, resumed at any time, folds to the log', async () => {
  await checkCentralProperty({ worker: worker.bus, api: api.bus }, 100);
  await checkCentralProperty({ worker: worker.bus, api: api.bus }, 50, randomThreads());
});

test('a late reader gets the text so far without a further frame, and nothing of a finished message', async () => {
  const writing = new Writing();
  writing.say('I was saying ');
  writing.say('this before you came');
  await new Reading(writing).untilCurrent();
  const next = new Writing(writing.turnId);
  next.say('next');
  writing.finish();
  const tap = new BusTap(api.bus, writing.turnId);
  onTestFinished(tap.close);
  // The first response may have been in flight.
  await tap.requestSnapshots(1);
  expect(await tap.requestSnapshots(1)).toMatchObject([
    { messageId: next.messageId, frames: 1, text: { content: 'next' } },
  ]);
});

test('an output reaches the readers of other processes, whole after an outage and for those that come later', async () => {
  const turnId = newId('turn');
  const piece = (from: number, text: string): LiveOutput => {
    const place = { turnId, threadId: 'main', toolCallId: 'call_1', id: 'evt_1', after: 1, attempt: 1 };
    return { ...place, from, parts: [{ channel: 'stdout', text }] };
  };
  const tap = new BusTap(api.bus, turnId);
  onTestFinished(tap.close);
  worker.bus.publishOutput(piece(0, 'a'));
  api.bus.requestSnapshots(turnId);
  await expect.poll(() => tap.outputs).toContainEqual(piece(0, 'a'));
  worker.bus.publishOutput(piece(1, 'b'));
  // The answer to the request may come after it, with both.
  await expect.poll(() => tap.outputs).toContainEqual(piece(1, 'b'));
  await server.down();
  await expect.poll(() => worker.commands.isReady).toBe(false);
  worker.bus.publishOutput(piece(2, 'c'));
  await server.up();
  // As a reader does that notices the outage: the worker may be connected again before this process is.
  const asked = () => {
    api.bus.requestSnapshots(turnId);
    return tap.outputs.at(-1);
  };
  await expect.poll(asked).toEqual(piece(0, 'abc'));
  const late = new BusTap(api.bus, turnId);
  onTestFinished(late.close);
  const askedLate = () => {
    api.bus.requestSnapshots(turnId);
    return late.outputs.at(-1);
  };
  await expect.poll(askedLate).toEqual(piece(0, 'abc'));
  worker.bus.finishOutput(piece(0, ''));
  // Messages from before have arrived then.
  for (const client of [api.commands, worker.subscriptions, worker.commands, api.subscriptions]) await client.ping();
  late.outputs.length = 0;
  const writing = new Writing(turnId);
  writing.say('a message');
  await late.requestSnapshots(1);
  expect(late.outputs).toEqual([]);
});

test('a request for snapshots waits until its response can be received', async () => {
  const gate = Promise.withResolvers<void>();
  const subscribe = api.subscriptions.subscribe.bind(api.subscriptions);
  const spy = vi.spyOn(api.subscriptions, 'subscribe').mockImplementationOnce(async (...args) => {
    await gate.promise;
    return subscribe(...args);
  });
  onTestFinished(() => spy.mockRestore());
  const writing = new Writing();
  writing.say('so far');
  const reading = new Reading(writing);
  await api.commands.ping();
  await worker.commands.ping();
  gate.resolve();
  await reading.untilCurrent();
});

test('a request before there is a message, and another one when there is, are both answered', async () => {
  const writing = new Writing();
  const tap = new BusTap(api.bus, writing.turnId);
  onTestFinished(tap.close);
  api.bus.requestSnapshots(writing.turnId);
  // The request is in flight when the subscription is ready, and is received when the worker has handled what came after it.
  for (const client of [api.subscriptions, api.commands, worker.subscriptions]) await client.ping();
  await nextTick();
  writing.say('so far');
  await tap.receiveFrames(1);
  expect(await tap.requestSnapshots(1)).toMatchObject([{ text: { content: 'so far' } }]);
});

test('after any fault of Redis and its connections a reader is brought up to the text so far, without a further frame', async () => {
  const client = fc.constantFrom('worker.commands', 'worker.subscriptions', 'api.commands', 'api.subscriptions');
  const happening = fc.oneof(
    { weight: 4, arbitrary: fc.constant({ happens: 'words' as const }) },
    { weight: 2, arbitrary: client.map((which) => ({ happens: 'cut' as const, which })) },
    { weight: 1, arbitrary: fc.constantFrom({ happens: 'restart' as const }, { happens: 'flush' as const }) },
  );
  const clients = () => ({
    'worker.commands': worker.commands,
    'worker.subscriptions': worker.subscriptions,
    'api.commands': api.commands,
    'api.subscriptions': api.subscriptions,
  });
  await fc.assert(
    fc.asyncProperty(fc.array(happening, { minLength: 1, maxLength: 8 }), fc.nat(3), async (happenings, late) => {
      const writing = new Writing();
      const first = new Reading(writing);
      let second: Reading | undefined;
      for (const [i, one] of happenings.entries()) {
        if (one.happens === 'words') writing.say(`word${i} `);
        if (one.happens === 'cut') await server.cut(clients()[one.which]);
        if (one.happens === 'flush') await api.commands.flushAll().catch(() => undefined);
        if (one.happens === 'restart') {
          await server.down();
          writing.say('into the void ');
          await server.up();
        }
        if (i === late) second = new Reading(writing);
        if (one.happens === 'words') await nextTick();
      }
      await first.untilCurrent();
      await second?.untilCurrent();
      writing.finish();
    }),
    { numRuns: 40 },
  );
}, 240_000);

test('a Redis that takes frames slowly costs bounded memory; when it has caught up, readers have everything', async () => {
  const writings = Array.from({ length: 7 }, () => new Writing());
  const readings = writings.map((writing) => new Reading(writing));
  for (const writing of writings) writing.say('first ');
  for (const reading of readings) await reading.untilCurrent();
  server.hang();
  onTestFinished(() => server.goOn());
  const publish = vi.spyOn(worker.commands, 'publish');
  onTestFinished(() => publish.mockRestore());
  for (let i = 0; i < 3; i++) for (const writing of writings) writing.say(String(i).repeat(1_000_000));
  for (const writing of writings) writing.say('last');
  expect(publish.mock.calls.length).toBe(17);
  server.goOn();
  for (const reading of readings) await reading.untilCurrent();
});

test('a subscription that ends during an outage is not renewed after it', async () => {
  const turnId = newId('turn');
  const ignore = (): void => undefined;
  const leave = api.bus.subscribe(turnId, {
    frame: ignore,
    snapshot: ignore,
    retrying: ignore,
    output: ignore,
    lost: ignore,
  });
  const reading = new Reading(new Writing());
  const channels = async () => (await worker.commands.pubSubChannels(`*${turnId}`)).length;
  await expect.poll(channels).toBe(1);
  await server.down();
  await expect.poll(() => api.subscriptions.isReady).toBe(false);
  leave();
  // With this the client discards its queued commands.
  await new Promise((resolve) => void api.subscriptions.once('error', resolve));
  await server.up();
  await expect.poll(() => reading.lost).toBeGreaterThan(0);
  await expect.poll(channels).toBe(0);
});

test('the hint of a cancel reaches the other processes, also after an outage', async () => {
  const [turnId, other] = [newId('turn'), newId('turn')];
  const hints = { own: 0, other: 0 };
  onTestFinished(worker.bus.onHint(`cancel:${turnId}`, () => (hints.own += 1)));
  onTestFinished(worker.bus.onHint(`cancel:${other}`, () => (hints.other += 1)));
  const hintAgain = (): number => {
    api.bus.hint(`cancel:${turnId}`);
    return hints.own;
  };
  // The worker may still be reconnecting after the outages of other tests.
  await expect.poll(hintAgain).toBeGreaterThan(0);
  await server.down();
  await server.up();
  const before = hints.own;
  await expect.poll(hintAgain).toBeGreaterThan(before);
  expect(hints.other).toBe(0);
});

test('the hint of a command reaches this process at once, and the others', async () => {
  const turnId = newId('turn');
  const hints = { here: 0, there: 0 };
  onTestFinished(api.bus.onHint(`command:${turnId}`, () => (hints.here += 1)));
  onTestFinished(worker.bus.onHint(`command:${turnId}`, () => (hints.there += 1)));
  api.bus.hint(`command:${turnId}`);
  expect(hints.here).toBe(1);
  const hintAgain = (): number => {
    api.bus.hint(`command:${turnId}`);
    return hints.there;
  };
  await expect.poll(hintAgain).toBeGreaterThan(0);
});

test('the hint that a log grows reaches the readers of its turn in other processes', async () => {
  const turnId = newId('turn');
  const [tap, other] = [new BusTap(api.bus, turnId), new BusTap(api.bus, newId('turn'))];
  onTestFinished(() => [tap, other].forEach(({ close }) => close()));
  const hintAgain = (): number => {
    worker.bus.hint(`growth:${turnId}`);
    return tap.growths;
  };
  // The subscription may not be active yet.
  await expect.poll(hintAgain).toBeGreaterThan(0);
  expect(other.growths).toBe(0);
});

test('a Redis that rejects live text is reported to the operator once, and the text is resent when it accepts it again', async () => {
  const lines: string[] = [];
  const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) });
  const refused = worker;
  worker = await connect(log);
  onTestFinished(() => {
    worker.close();
    worker = refused;
  });
  const writing = new Writing();
  const reading = new Reading(writing);
  await api.commands.sendCommand(['ACL', 'SETUSER', 'default', '-publish']);
  for (let i = 0; i < 20; i++) {
    writing.say(`word${i} `);
    await worker.commands.ping();
  }
  expect(lines).toEqual([expect.stringContaining('Redis does not carry live text')]);
  expect(lines[0]).toContain('NOPERM');
  await api.commands.sendCommand(['ACL', 'SETUSER', 'default', '+publish']);
  writing.say('at last');
  await reading.untilCurrent();
});
