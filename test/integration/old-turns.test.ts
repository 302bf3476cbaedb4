import { mkdtemp, rm } from 'node:fs/promises';
import { DatabaseSync } from 'node:sqlite';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Client, Connection } from '@temporalio/client';
import { expect, inject, onTestFinished, test } from 'vitest';
import type { TurnStart } from '../../src/core/history.ts';
import { turnWorkflowId } from '../../src/core/temporal-names.ts';
import { newId } from '../../src/engine/new-id.ts';
import { everturn } from '../support/command-line.ts';
import { turnStart } from '../support/random-turn.ts';
import { ServerProcess } from '../support/server-process.ts';

test('turns that an earlier version began are not continued: a start names them, or ends them with an error', async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-old-turns-'));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  const [taskQueue, namespace] = [newId('req'), inject('temporalNamespace')];
  const env = {
    EVERTURN_TASK_QUEUE: taskQueue,
    EVERTURN_SHUTDOWN_SECONDS: '1',
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: namespace,
  };
  const server = await ServerProcess.prepare(dataDir, env);
  await server.start();
  onTestFinished(() => server.stop().then(() => undefined));
  const { api } = server;
  const asking = await api.createSession('demo');
  const asked = await api.turn(asking, 'note: buy milk').end();
  const counting = await api.createSession('demo');
  const current = api.turn(counting, 'count slowly to 3');
  const currentId = await current.turnId();
  await current.type('model.message.delta');
  const sessionId = await api.createSession('demo');
  await server.stop();
  await current.done.catch(() => undefined);

  const turnId = newId('turn');
  await startAsBefore(turnStart({ turnId, sessionId }), { namespace, taskQueue });
  const catalog = new DatabaseSync(path.join(dataDir, 'catalog.db'));
  catalog.exec(`delete from marks where name like 'no turns before rules%'`);
  catalog.close();

  const refused = await everturn(['start'], { EVERTURN_DATA: dataDir, EVERTURN_PORT: '0', ...env });
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining(turnId) });
  expect(refused.stderr).toContain('--end-old-turns');
  expect(refused.stderr).not.toContain(currentId);

  await server.start({}, ['--end-old-turns']);
  expect(await api.followTurn(sessionId, turnId).end()).toMatchObject({
    status: 'error',
    message: expect.stringContaining('--end-old-turns'),
  });
  expect(await api.turn(sessionId, 'hello').end()).toMatchObject({ status: 'done' });
  expect((await api.get(`/v1/agents/sessions/${sessionId}/turns`)).data).toHaveLength(2);
  expect(await api.followTurn(counting, currentId).end()).toMatchObject({ status: 'done' });
  if (asked.status !== 'done') throw new Error(asked.status);
  const answer = {
    type: 'user.tool_approval',
    thread_id: 'main',
    tool_call_id: asked.required_actions[0]?.tool_calls[0]?.id,
    approval: { status: 'allow' },
  };
  expect(await api.turn(asking, [answer]).end()).toMatchObject({ status: 'done' });
});

/** Starts a turn as a version did whose turns had no rules yet. No worker runs. */
async function startAsBefore(
  start: TurnStart,
  { namespace, taskQueue }: { namespace: string; taskQueue: string },
): Promise<void> {
  const connection = await Connection.connect({ address: inject('temporalAddress') });
  try {
    const client = new Client({ connection, namespace });
    await client.workflow.start('turn', { workflowId: turnWorkflowId(start.turnId), args: [start], taskQueue });
  } finally {
    await connection.close();
  }
}
