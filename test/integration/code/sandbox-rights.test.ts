import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../../src/engine/new-id.ts';
import { ApiClient } from '../../support/api-client.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

let server: TestServer;
let ann: ApiClient;
let others: { bob: ApiClient; boss: ApiClient; admin: ApiClient };
beforeAll(async () => {
  server = await startTestServer({
    env: { EVERTURN_API_KEYS: 'root:admin=key-of-root,boss:approver=key-of-boss,ann=key-of-ann,bob=key-of-bob' },
  });
  const as = (key: string) => new ApiClient(server.server.url, key);
  ann = as('key-of-ann');
  others = { bob: as('key-of-bob'), boss: as('key-of-boss'), admin: as('key-of-root') };
});
afterAll(() => server.stop());

/** A session of ann with an agent, and a sandbox that no host has opened. */
async function sessionWithSandbox(spec: object = {}): Promise<{ path: string; sandbox: string }> {
  const { body } = await ann.send('POST', '/v1/agents/draft-sessions', {
    agent_spec: { model: { name: 'm' }, ...spec },
  });
  const session_id = body.data.id;
  const row = { session_id, id: newId('sbx'), host: '', isolation: 'none', opened_by: '' } as const;
  const created_at = new Date().toISOString();
  await server.database.rows
    .insertInto('sandboxes')
    .values({ ...row, created_at, workspace: null })
    .execute();
  return { path: `/v1/agents/sessions/${session_id}`, sandbox: `/v1/agents/sandbox/${row.id}/file?path=a` };
}

/** The result of each caller: the status, or the code of an error. */
async function codes(path: string, method = 'GET', body?: string | object): Promise<Record<string, unknown>> {
  const answers = Object.entries({ ann, ...others }).map(async ([name, api]) => {
    const answer = await api.send(method, path, body);
    return [name, answer.status < 400 ? answer.status : answer.body.error.code] as const;
  });
  return Object.fromEntries(await Promise.all(answers));
}

test('callers who may read a session may read its sandbox and its files; for others there is none', async () => {
  const { path, sandbox } = await sessionWithSandbox();
  for (const readable of [`${path}/sandbox`, `${path}/workspace`, `${path}/code-tools`]) {
    expect(await codes(readable)).toEqual({ ann: 200, bob: 'session_not_found', boss: 200, admin: 200 });
  }
  const missing = 'file_not_found';
  expect(await codes(sandbox)).toEqual({ ann: missing, bob: 'sandbox_not_found', boss: missing, admin: missing });
  const unknown = await others.bob.send('GET', `/v1/agents/sandbox/${newId('sbx')}/file?path=a`);
  expect(unknown).toMatchObject({ status: 404, body: (await others.bob.send('GET', sandbox)).body });
});

test('only the owner changes files, interrupts code and resets kernels, of an agent that acts in code', async () => {
  const { path } = await sessionWithSandbox();
  const file = `${path}/workspace/file?path=a`;
  const refused = { bob: 'session_not_found', boss: 'forbidden', admin: 'forbidden' };
  expect(await codes(file, 'PUT', 'x')).toEqual({ ann: 'feature_not_available', ...refused });
  expect(await codes(file, 'DELETE')).toEqual({ ann: 'feature_not_available', ...refused });
  for (const command of ['interrupt', 'reset']) {
    expect(await codes(`${path}/sandbox/${command}`, 'POST', {})).toEqual({ ann: 'feature_not_available', ...refused });
  }
});

test('an agent that does not offer its files refuses their download', async () => {
  const { sandbox } = await sessionWithSandbox({ config: { sandbox: { enabled: false, file_downloads: false } } });
  expect(await ann.send('GET', sandbox)).toMatchObject({ status: 403, body: { error: { code: 'forbidden' } } });
});

test('admins list the kernel hosts', async () => {
  const seen = { kernels: 3, capacity: 2, reason: null, seen_at: new Date().toISOString() };
  await server.database.rows
    .insertInto('kernel_hosts')
    .values([
      { host: 'one', state: 'draining', ...seen },
      { host: 'lost', state: 'ready', ...seen, seen_at: '2026-01-01T00:00:00.000Z' },
    ])
    .execute();
  const { body } = await others.admin.send('GET', '/v1/kernels');
  expect(body.data).toEqual([{ host: 'one', kernels: 3, free: 0, draining: true, last_seen: seen.seen_at }]);
  expect(await codes('/v1/kernels')).toEqual({ ann: 'forbidden', bob: 'forbidden', boss: 'forbidden', admin: 200 });
});
