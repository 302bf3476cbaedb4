import { randomBytes } from 'node:crypto';
import { ApplicationFailure, defaultPayloadConverter, type SerializationContext } from '@temporalio/common';
import { isCancellation } from '@temporalio/workflow';
import { encodeErrorToFailure, loadDataConverter } from '../../test/support/sdk-internals.ts';
import { expect, test } from 'vitest';
import { Cipher, DecryptionFailed, EncryptionKeyMissing } from '../encryption/cipher.ts';
import { dataConverterFor, failureMessage } from './data-converter.ts';
import { EncryptionCodec } from './payload-codec.ts';
import { REFUSED } from '../core/temporal-names.ts';

const first = { id: 'k1', key: randomBytes(32) };
const second = { id: 'k2', key: randomBytes(32) };
const codec = new EncryptionCodec(new Cipher([first]));
const ofWorker = new EncryptionCodec(new Cipher([first]), 'marks');
const rotated = new EncryptionCodec(new Cipher([second, first]));

function inWorkflow(workflowId: string): SerializationContext {
  return { type: 'workflow', namespace: 'everturn', workflowId };
}

const payload = defaultPayloadConverter.toPayload({ said: 'hello' });
const here = inWorkflow('turn/1');

test('a payload is restored in any namespace; only its workflow and its key are stored in plain text', async () => {
  const [stored] = await codec.encode([payload], here);
  expect(Object.keys(stored?.metadata ?? {})).toEqual([
    'encoding',
    'encryption-key-id',
    'encryption-owner',
    'encryption-workflow-id',
  ]);
  expect(Buffer.from(stored?.data ?? []).includes('hello')).toBe(false);
  for (const context of [here, { ...here, namespace: 'elsewhere' }, undefined]) {
    const [read] = await codec.decode(stored ? [stored] : [], context);
    expect(read && defaultPayloadConverter.fromPayload(read)).toEqual({ said: 'hello' });
  }
});

test("a client's codec passes unencrypted payloads", async () => {
  expect(await codec.decode([payload, {}], here)).toEqual([payload, {}]);
});

test('a payload in another workflow is rejected, even if its metadata names that workflow', async () => {
  const stored = await codec.encode([payload], here);
  await expect(codec.decode(stored, inWorkflow('turn/2'))).rejects.toThrow(DecryptionFailed);
  const forged = stored.map(({ metadata, data }) => ({
    metadata: { ...metadata, 'encryption-workflow-id': Buffer.from('turn/2') },
    ...(data && { data }),
  }));
  await expect(codec.decode(forged, inWorkflow('turn/2'))).rejects.toThrow(DecryptionFailed);
});

test("a payload of an activity is rejected as the workflow's own, and an unbound payload in any workflow", async () => {
  const ofActivity = await codec.encode([payload], { ...here, type: 'activity', isLocal: false });
  await expect(codec.decode(ofActivity, here)).rejects.toThrow(DecryptionFailed);
  const unbound = await codec.encode([payload]);
  await expect(codec.decode(unbound, here)).rejects.toThrow(DecryptionFailed);
});

test("a worker's codec marks what it refuses so that no converter reads it, and throws only for a missing key", async () => {
  const [whole] = await codec.encode([payload], here);
  const [moved] = await codec.encode([payload], inWorkflow('turn/2'));
  const metadata = whole?.metadata;
  const cutOff = { ...(metadata && { metadata }), data: new Uint8Array(10) };
  const [read] = await ofWorker.decode(whole ? [whole] : [], here);
  expect(read && defaultPayloadConverter.fromPayload(read)).toEqual({ said: 'hello' });
  for (const [refused, reason] of [
    [payload, 'EVERTURN_ACCEPT_UNENCRYPTED'],
    [{}, 'EVERTURN_ACCEPT_UNENCRYPTED'],
    [moved ?? {}, 'it is stored in temporal/workflow/turn/1'],
    [cutOff, 'it is truncated'],
  ] as const) {
    const [read] = await ofWorker.decode([refused], here);
    expect(() => read && defaultPayloadConverter.fromPayload(read)).toThrow(`Unknown encoding: ${REFUSED}: `);
    expect(() => read && defaultPayloadConverter.fromPayload(read)).toThrow(reason);
  }
  await expect(ofWorker.decode(await rotated.encode([payload], here), here)).rejects.toThrow(EncryptionKeyMissing);
});

test('a truncated or changed payload is rejected, and a missing key is named', async () => {
  const [stored] = await codec.encode([payload], here);
  const metadata = stored?.metadata;
  const data = stored?.data ?? new Uint8Array();
  const changed = Buffer.from(data);
  changed[50] = (changed[50] ?? 0) ^ 1;
  for (const wrong of [changed, data.subarray(0, -1), data.subarray(0, 10), new Uint8Array()]) {
    await expect(codec.decode([{ ...(metadata && { metadata }), data: wrong }], here)).rejects.toThrow(
      DecryptionFailed,
    );
  }
  const later = await rotated.encode([payload], here);
  await expect(codec.decode(later, here)).rejects.toThrow(EncryptionKeyMissing);
  await expect(codec.decode(later, here)).rejects.toThrow('"k2"');
  const [read] = await rotated.decode(stored ? [stored] : [], here);
  expect(read && defaultPayloadConverter.fromPayload(read)).toEqual({ said: 'hello' });
});

test('the message of an error and its cause are encrypted', async () => {
  const converter = loadDataConverter(dataConverterFor(new Cipher([first])));
  const cause = new Error('it was about the door code');
  const error = ApplicationFailure.create({ message: 'the provider says: door code', type: 'overloaded', cause });
  const failure = await encodeErrorToFailure(converter, error, here);
  expect(JSON.stringify(failure)).not.toContain('door code');
  expect(JSON.stringify(failure)).not.toContain('payload-codec.test');
  expect(failure.applicationFailureInfo?.type).toBe('overloaded');
  expect(await failureMessage(converter, failure)).toBe('the provider says: door code');
  expect(await failureMessage(converter, { message: 'as it was before' })).toBe('as it was before');
});

test('an activity is cancelled that no worker has started, for which the server gives unencrypted details', async () => {
  const details = {
    payloads: await ofWorker.decode([defaultPayloadConverter.toPayload('ACTIVITY_ID_NOT_STARTED')], here),
  };
  const { failureConverter } = loadDataConverter(dataConverterFor(new Cipher([first]), 'marks'));
  const failure = {
    activityFailureInfo: { activityType: { name: 'callTool' }, retryState: 0 },
    cause: { canceledFailureInfo: { details } },
  };
  const error = failureConverter.failureToError(failure, defaultPayloadConverter);
  expect(isCancellation(error)).toBe(true);
});

test("without keys Temporal's default converter is used", () => {
  expect(dataConverterFor(new Cipher([]))).toBeUndefined();
});
