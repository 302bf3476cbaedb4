import { AsyncCompletionClient, type Client, type ConnectionLike } from '@temporalio/client';
import type { Payload } from '@temporalio/common';
import { defaultActivityInfo, MockActivityEnvironment } from '@temporalio/testing';
import { expect, test, vi } from 'vitest';
import { loadConfig } from '../config.ts';
import { Cipher } from '../encryption/cipher.ts';
import { dataConverterFor } from '../temporal/data-converter.ts';
import { EncryptionCodec } from '../temporal/payload-codec.ts';
import { completeReliably } from './complete-reliably.ts';

vi.mock('node:timers/promises', () => ({ setTimeout: () => Promise.resolve() }));

test('a result that is sent after an outage is encrypted for the activity: its workflow can read it', async () => {
  const keys = loadConfig({ EVERTURN_ENCRYPTION_KEYS: `k1:${Buffer.alloc(32, 7).toString('base64')}` }).encryptionKeys;
  const cipher = new Cipher(keys);
  const sent = Promise.withResolvers<Payload[]>();
  const workflowService = {
    getSystemInfo: () =>
      Promise.reject(Object.assign(new Error('unavailable'), { code: 14, details: '', metadata: {} })),
    respondActivityTaskCompleted: ({ result }: { result: { payloads: Payload[] } }) => {
      sent.resolve(result.payloads);
      return Promise.resolve({});
    },
  };
  const plain = { workflowService, withDeadline: (_at: number, work: () => Promise<unknown>) => work() };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the members that the test uses
  const connection = plain as unknown as ConnectionLike;
  const activity = new AsyncCompletionClient({ connection, dataConverter: dataConverterFor(cipher)! });
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
  const client = { connection, workflowService, activity } as unknown as Client;

  await new MockActivityEnvironment().run(() => Promise.resolve(completeReliably({ client }, { paid: true })));

  const { workflowId } = defaultActivityInfo.workflowExecution ?? { workflowId: '' };
  const codec = new EncryptionCodec(cipher, 'throws');
  const asScheduled = { type: 'activity', namespace: 'default', workflowId, isLocal: false } as const;
  const [payload] = await codec.decode(await sent.promise, asScheduled);
  expect(JSON.parse(Buffer.from(payload?.data ?? []).toString())).toEqual({ paid: true });
});

test('an outage that outlasts the heartbeat time-out ends the attempts: Temporal awaits no result any more', async () => {
  const metadata = { get: () => [] };
  const unavailable = Object.assign(new Error('unavailable'), { code: 14, details: '', metadata });
  let attempts = 0;
  const workflowService = {
    getSystemInfo: () => Promise.reject(unavailable),
    respondActivityTaskCompleted: async () => {
      attempts += 1;
      await new Promise((resolve) => setImmediate(resolve));
      throw unavailable;
    },
  };
  const plain = { workflowService, withDeadline: (_at: number, work: () => Promise<unknown>) => work() };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the members that the test uses
  const connection = plain as unknown as ConnectionLike;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
  const client = {
    connection,
    workflowService,
    activity: new AsyncCompletionClient({ connection }),
  } as unknown as Client;
  const env = new MockActivityEnvironment({ heartbeatTimeoutMs: 20 });
  await env.run(() => Promise.resolve(completeReliably({ client }, { paid: true })));
  let before = -1;
  const hasEnded = () => {
    const isSame = before === attempts && attempts > 0;
    before = attempts;
    return isSame;
  };
  await expect.poll(hasEnded, { interval: 200 }).toBe(true);
});
