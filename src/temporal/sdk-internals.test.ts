import { randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { ApplicationFailure, type SerializationContext } from '@temporalio/common';
import { expect, test, vi } from 'vitest';
import packageJson from '../../package.json' with { type: 'json' };
import { ActivatedWorkflow, toPayload } from '../../test/support/activated-workflow.ts';
import { turnStart } from '../../test/support/random-turn.ts';
import {
  encodeErrorToFailure,
  historyFromJSON,
  historyToJSON,
  loadDataConverter,
} from '../../test/support/sdk-internals.ts';
import { Cipher, DecryptionFailed } from '../encryption/cipher.ts';
import { dataConverterFor } from './data-converter.ts';
import {
  decode,
  decodeArrayFromPayloads,
  decodeFailure,
  encodeToPayloadsWithContext,
  msToNumber,
  msToTs,
  optionalTsToMs,
} from './sdk-internals.ts';
import { WorkerThreadClient } from './sdk-worker-internals.ts';

/**
 * The version whose internals are used. Before another one is pinned, read what has changed in the modules that
 * `sdk-internals.ts`, `sdk-worker-internals.ts` and `test/support/sdk-internals.ts` import, and run all tests.
 */
const SDK_VERSION = '1.24.0';

const packages = Object.entries(packageJson.dependencies).filter(([name]) => name.startsWith('@temporalio/'));

test.each(packages)('%s is pinned and installed in the version whose internals are used', (name, pinned) => {
  const installed: { version?: string } = createRequire(import.meta.url)(`${name}/package.json`);
  expect([pinned, installed.version]).toEqual([SDK_VERSION, SDK_VERSION]);
});

const converter = loadDataConverter(dataConverterFor(new Cipher([{ id: 'k1', key: randomBytes(32) }])));
const context: SerializationContext = { type: 'workflow', namespace: 'n', workflowId: 'turn/1' };

test('payloads are encoded for their workflow by the codecs, and decoded for it', async () => {
  const payloads = (await encodeToPayloadsWithContext(converter, context, ['door code', 2])) ?? [];
  expect(Buffer.from(payloads[0]?.data ?? []).includes('door code')).toBe(false);
  expect(await decodeArrayFromPayloads(converter, payloads, context)).toEqual(['door code', 2]);
  const [first] = await decode(converter.payloadCodecs, payloads, context);
  expect(Buffer.from(first?.data ?? []).toString()).toBe('"door code"');
  const elsewhere = { ...context, workflowId: 'turn/2' };
  await expect(decode(converter.payloadCodecs, payloads, elsewhere)).rejects.toThrow(DecryptionFailed);
});

test('the encoded attributes of failures are decoded', async () => {
  const failure = await encodeErrorToFailure(converter, ApplicationFailure.nonRetryable('door code'), context);
  const { encodedAttributes } = await decodeFailure(converter.payloadCodecs, failure, context);
  expect(encodedAttributes && converter.payloadConverter.fromPayload(encodedAttributes)).toMatchObject({
    message: 'door code',
  });
});

test('times and durations are converted', () => {
  expect(msToTs(1_500)).toMatchObject({ nanos: 500_000_000 });
  expect(optionalTsToMs(msToTs(1_500))).toBe(1_500);
  expect(optionalTsToMs(undefined)).toBeUndefined();
  expect(msToNumber('2 minutes')).toBe(120_000);
});

test('histories are restored from JSON', () => {
  const history = {
    events: [{ eventId: '1', eventType: 'WorkflowExecutionStarted', workflowExecutionStartedEventAttributes: {} }],
  };
  const text = historyToJSON(historyFromJSON(history));
  expect(historyToJSON(historyFromJSON(JSON.parse(text)))).toBe(text);
  expect(text).toContain('EVENT_TYPE_WORKFLOW_EXECUTION_STARTED');
});

test('a workflow thread gets each request by `send`, where it is watched, and records no stacks', async () => {
  const send = vi.spyOn(WorkerThreadClient.prototype, 'send');
  await using workflow = await ActivatedWorkflow.create('turn');
  const input = [toPayload(turnStart())];
  await workflow.activate({ initializeWorkflow: { workflowType: 'turn', arguments: input } });
  const [answer] = await workflow.activate({ queryWorkflow: { queryId: 'q', queryType: '__stack_trace' } });
  expect(answer?.respondToQuery?.failed?.message).toContain('not enabled');
  expect(send.mock.calls.map(([{ type }]) => type).slice(-3)).toEqual([
    'create-workflow',
    'activate-workflow',
    'activate-workflow',
  ]);
  send.mockRestore();
});
