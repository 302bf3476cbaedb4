import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { turnWorkflowId } from '../../src/core/temporal-names.ts';
import { say, use, type Script } from '../support/scripted-model.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** The codes that the log has for the errors of turns. The Sessions API shows only that of a budget. */

let server: TestServer;
let temporal: TemporalClient;
beforeAll(async () => {
  temporal = await TemporalClient.connect({
    address: inject('temporalAddress'),
    namespace: inject('temporalNamespace'),
  });
  server = await startTestServer();
});
afterAll(async () => {
  await temporal.close();
  await server.stop();
});

const schema = { type: 'object', required: ['city'] };
const response_format = { type: 'json_schema' as const, json_schema: { name: 'place', schema } };

test.each<[string, { scripts: Script[]; spec?: object }, string | undefined]>([
  [
    'the limit of model calls',
    { scripts: [use({ name: 'unknown' })], spec: { config: { iteration_limit: 1 } } },
    'iteration_limit',
  ],
  [
    'an answer that never fits its schema',
    { scripts: [say('no')], spec: { response_format, config: { structured_output: { max_repairs: 0 } } } },
    'answer_misfit',
  ],
  ['a provider that fails for good', { scripts: [(call) => call.fail(401, 'Incorrect API key')] }, 'model_failed'],
  ['an answer that is too long', { scripts: [(call) => call.text('and so on').finish('length')] }, undefined],
])('%s', async (_what, chatOptions, code) => {
  const chat = await server.chat(chatOptions);
  const reader = chat.turn('go');
  const end = await reader.end();
  expect(end).toMatchObject({ status: 'error' });
  expect(end).not.toHaveProperty('code');
  const workflow = temporal.client.workflow.getHandle(turnWorkflowId(await reader.turnId()));
  const result: unknown = await workflow.result();
  expect(result).toMatchObject({ status: 'error' });
  expect(result).toHaveProperty('message');
  expect((result as { code?: string }).code).toBe(code);
});
