import { setImmediate as nextTick } from 'node:timers/promises';
import { pino } from 'pino';
import { beforeEach, expect, test } from 'vitest';
import type { Redis, RedisClient } from '../lib/redis.ts';
import type { RetryNotice } from '../core/attempts.ts';
import type { LiveListener, Topic } from './bus.ts';
import { RedisBus } from './redis-bus.ts';

/** Two processes at a Redis that delivers each message later, also to the process that has published it. */

type Receive = (message: string, channel: string) => void;

/** The processes that are subscribed to the channels. */
let channels: Map<string, Set<Receive>>;
let received: { here: string[]; there: string[] };
let here: RedisBus;
let there: RedisBus;
beforeEach(() => {
  channels = new Map();
  received = { here: [], there: [] };
  [here, there] = [connect(received.here), connect(received.there)];
});

function connect(channelsOfReceived: string[]): RedisBus {
  const client: Partial<Record<keyof RedisClient, unknown>> = {
    isReady: true,
    on: () => undefined,
    getPubSubListeners: () => new Map(),
    subscribe: async (channel: string, receive: Receive) => {
      const note: Receive = (message) => {
        channelsOfReceived.push(channel);
        receive(message, channel);
      };
      channels.set(channel, (channels.get(channel) ?? new Set()).add(note));
      await Promise.resolve();
    },
    publish: async (channel: string, message: string) => {
      const subscribed = channels.get(channel) ?? [];
      await nextTick();
      for (const receive of subscribed) receive(message, channel);
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the commands that a bus uses
  const redis = { commands: client, subscriptions: client } as unknown as Redis;
  return new RedisBus({ redis, prefix: '', log: pino({ level: 'silent' }) });
}

/** Counts the hints of a topic. */
function count(bus: RedisBus, topic: Topic): { hints: number } {
  const counted = { hints: 0 };
  bus.onHint(topic, () => (counted.hints += 1));
  return counted;
}

/** Until what was published is delivered. */
async function delivered(): Promise<void> {
  await nextTick();
  await nextTick();
}

test.each(['command:turn_1', 'cancel:turn_1', 'growth:turn_1', 'session:ses_1', 'change:actions'] as const)(
  'the hint %s reaches this process at once and not a second time, and others once',
  async (topic) => {
    const ignore = (): void => undefined;
    const listener: LiveListener = {
      frame: ignore,
      snapshot: ignore,
      retrying: ignore,
      output: ignore,
      lost: ignore,
    };
    for (const bus of [here, there]) bus.subscribe('turn_1', listener);
    const [own, other] = [count(here, topic), count(there, topic)];
    here.hint(topic);
    expect([own.hints, other.hints]).toEqual([1, 0]);
    await delivered();
    expect([own.hints, other.hints]).toEqual([1, 1]);
  },
);

test('the hint that a log grows is sent to no process without readers of its turn', async () => {
  here.hint('growth:turn_1');
  here.hint('cancel:turn_1');
  await delivered();
  expect(received.there).toEqual(['hints']);
});

test('a notice reaches the readers of its turn once, and no process without any', async () => {
  const ignore = (): void => undefined;
  const notices: RetryNotice[] = [];
  const retrying = (notice: RetryNotice): void => void notices.push(notice);
  there.subscribe('turn_1', { frame: ignore, snapshot: ignore, retrying, output: ignore, lost: ignore });
  const notice = { id: 'evt_1', at: '2026-11-21T08:00:00.000Z', threadId: 'main', attempt: { number: 1 } };
  here.announce({ ...notice, turnId: 'turn_1' });
  here.announce({ ...notice, turnId: 'turn_2' });
  await delivered();
  expect(notices).toEqual([{ ...notice, turnId: 'turn_1' }]);
});
