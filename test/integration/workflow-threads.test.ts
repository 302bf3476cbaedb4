import { fileURLToPath } from 'node:url';
import type { WorkflowHandle } from '@temporalio/client';
import { NativeConnection } from '@temporalio/worker';
import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import { sessionWorkflowId } from '../../src/core/temporal-names.ts';
import { newId } from '../../src/engine/new-id.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { LeanWorker } from '../../src/temporal/workflow-threads.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { say } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';
import { go } from '../support/thread-workflows.ts';

const address = inject('temporalAddress');
const namespace = inject('temporalNamespace');
let log = '';
let server: TestServer;
let temporal: TemporalClient;
let native: NativeConnection;

beforeAll(async () => {
  server = await startTestServer({
    log: createLogger({ logLevel: 'debug' }, { write: (line: string) => void (log += line) }),
  });
  temporal = await TemporalClient.connect({ address, namespace });
  native = await NativeConnection.connect({ address });
});

afterAll(async () => {
  await native.close();
  await temporal.close();
  await server.stop();
});

/** The output of `temporal workflow stack`. */
function stackOf(workflow: WorkflowHandle): Promise<string> {
  return workflow.query('__stack_trace');
}

test('workers provide the stacks of workflows only if the operator wants them', async () => {
  const { sessionId, turn } = await server.chat({ scripts: [say('Hello')] });
  await turn('hi').end();
  const session = temporal.client.workflow.getHandle(sessionWorkflowId(sessionId));
  await expect(stackOf(session)).rejects.toThrow('stack traces are not enabled on this worker');

  await server.restart({ EVERTURN_WORKFLOW_STACK_TRACES: 'true' });
  expect(await stackOf(session)).toContain('workflows/session.ts');
});

test('a workflow that blocks the workflow thread stops no other workflow', async () => {
  const taskQueue = newId('req');
  const workflowsPath = fileURLToPath(new URL('../support/thread-workflows.ts', import.meta.url));
  const worker = await LeanWorker.create({ connection: native, namespace, taskQueue, workflowsPath });
  const stopped = worker.run();
  onTestFinished(async () => {
    worker.shutdown();
    await stopped;
  });
  const start = (type: string): Promise<WorkflowHandle> =>
    temporal.client.workflow.start(type, { taskQueue, workflowId: newId('req'), args: [] });
  const other = await start('waits');
  // It is on the thread now.
  await expect(stackOf(other)).rejects.toThrow('not enabled');
  const blocking = await start('blocks');
  onTestFinished(async () => void (await blocking.terminate()));
  await expect.poll(() => log).toContain('a workflow blocked the workflow thread');
  expect(log).toContain(`"runIds":["${(await blocking.describe()).runId}"]`);

  await other.signal(go);
  expect(await other.result()).toBe('done');
});
