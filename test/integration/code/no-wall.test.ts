import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../../src/engine/new-id.ts';
import { FREE } from '../../support/code-server.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

let server: TestServer;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  server = await startTestServer({
    env: {
      EVERTURN_KERNELS: '1',
      EVERTURN_KERNEL_PYTHON: await kernelPython(),
      EVERTURN_KERNEL_SANDBOX: 'bwrap',
      PATH: '/nowhere',
    },
  });
});
afterAll(() => server.stop());

test('without a wall no code runs, and the error for agents that act in code names what is missing', async () => {
  const name = newId('req');
  // It starts the host, which has not looked for its wall yet.
  await server.api.putAgent(name, { model: { name }, ...FREE });
  const sessionId = await server.api.createSession(name);
  const hosts = server.database.rows.selectFrom('kernel_hosts').select('state');
  await expect.poll(() => hosts.execute()).toEqual([{ state: 'failed' }]);
  const refused = { code: 'feature_not_available', message: expect.stringMatching(/no wall .*bwrap/s) };
  const draft = { agent_spec: { model: { name }, ...FREE } };
  expect(await server.api.send('POST', '/v1/agents/draft-sessions', draft)).toMatchObject({
    status: 422,
    body: { error: { ...refused, param: 'agent_spec.code_actions' } },
  });
  const body = { input: [{ type: 'user.message', content: 'go' }], stream: false };
  expect(await server.api.send('POST', `/v1/agents/sessions/${sessionId}/turns`, body)).toMatchObject({
    status: 422,
    body: { error: refused },
  });
  expect(server.model.requestsTo(name)).toEqual([]);
});
