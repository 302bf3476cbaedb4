import { afterAll, beforeAll, expect, test } from 'vitest';
import { ApiClient } from '../support/api-client.ts';
import { OidcIssuer } from '../support/oidc-issuer.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let idp: OidcIssuer;
let server: TestServer;
beforeAll(async () => {
  idp = await OidcIssuer.start();
  server = await startTestServer({
    env: {
      EVERTURN_OIDC_ISSUER: idp.url,
      EVERTURN_OIDC_AUDIENCE: 'everturn',
      EVERTURN_API_KEYS: 'bot=key-of-bot,root:admin=key-of-root',
    },
  });
  await as('key-of-root').putAgent('writer', { model: { name: 'm' } });
});
afterAll(async () => {
  await server.stop();
  await idp.stop();
});

const as = (credential?: string) => new ApiClient(server.server.url, credential);

test('a token of the provider authenticates its subject with its roles', async () => {
  // An unavailable provider stops neither the start nor callers with a key.
  idp.isAway = true;
  const ann = await idp.token({ preferred_username: 'ann' });
  const away = await as(ann).send('GET', '/v1/agents');
  expect([away.status, away.body.error.code, away.headers.get('retry-after')]).toEqual([503, 'unavailable', '2']);
  expect((await as('key-of-bot').send('GET', '/v1/agents')).status).toBe(200);
  idp.isAway = false;
  await expect.poll(async () => (await as(ann).send('GET', '/v1/agents')).status).toBe(200);

  const id = await as(ann).createSession('writer');
  const path = `/v1/agents/sessions/${id}`;
  const { data } = await as(ann).get(path);
  const subject = { subject_id: `${idp.url}#u-1`, subject_type: 'user', subject_slug: 'ann' };
  expect(data.created_by_subject).toEqual(subject);
  // The same person with another name and a new token; another person; an admin; a key.
  expect((await as(await idp.token({ preferred_username: 'anna' })).send('GET', path)).status).toBe(200);
  expect((await as(await idp.token({ sub: 'u-2' })).send('GET', path)).status).toBe(404);
  expect((await as('key-of-bot').send('GET', path)).status).toBe(404);
  const admin = as(await idp.token({ sub: 'u-3', roles: ['admin'] }));
  await admin.putAgent('theirs', { model: { name: 'm' } });
  expect((await admin.send('GET', path)).status).toBe(200);
  expect((await as(ann).send('PUT', '/v1/agents/theirs', { model: { name: 'm' } })).status).toBe(403);
  const turn = as(ann).turn(id, 'hi');
  expect(await turn.type('turn.created')).toMatchObject({ created_by: subject });
  await turn.done;

  const late = await as(await idp.token({ exp: 1 })).send('GET', path);
  expect([late.status, late.body.error]).toEqual([
    401,
    expect.objectContaining({ code: 'unauthenticated', message: 'the token has expired' }),
  ]);
  expect(late.headers.get('www-authenticate')).toBe('Bearer');
  for (const none of [undefined, 'key-of-nobody', await idp.token({ iss: 'https://other.example' })]) {
    expect((await as(none).send('GET', path)).status).toBe(401);
  }
  expect(server.server.names).toEqual(['bot', 'root', `bearers of a token from ${idp.url}`]);
});

test('a stream ends with the token that opened it, and continues with a newer one', async () => {
  const admin = as(await idp.token({ roles: ['admin'] }));
  await admin.putAgent('slow', { model: { name: 'slow' } });
  server.model.script('slow', async (call) => {
    call.text('Slowly');
    await call.closed;
  });
  const id = await admin.createSession('slow');
  // Clocks may differ by 30 s, so it is still valid for some seconds.
  const reader = as(await idp.token({ exp: Math.floor(Date.now() / 1000) - 25 })).turn(id, 'hi');
  await reader.says('Slowly');
  await expect(reader.done).rejects.toThrow(/terminated/);
  const next = admin.subscribe(id, await reader.turnId());
  await next.says('Slowly');
  await admin.send('POST', `/v1/agents/sessions/${id}/cancel`, {});
  expect(await next.end()).toMatchObject({ status: 'cancelled' });
});

test('a schedule runs with the roles in the newest token of its author', async () => {
  const now = Math.floor(Date.now() / 1000);
  const author = as(await idp.token({ sub: 'u-9', iat: now - 60 }));
  const agent = { name: 'reporter', description: 'for the test', environments: [], model: 'reporter' };
  const { status, body } = await author.send<{ id: string }>('POST', '/api/v2/schedules', {
    name: 'Report',
    timing: { type: 'cron', expression: '0 0 1 1 *', timezone: 'UTC' },
    session_request: { agent, messages: 'Report.' },
  });
  expect(status, JSON.stringify(body)).toBe(201);
  const run = async () => (await author.send('POST', `/api/v2/schedules/${body.id}/trigger`)).body;
  // The author is only an approver now.
  await as(await idp.token({ sub: 'u-9', iat: now, roles: ['approver'] })).get('/v1/agents');
  const { rows } = server.database;
  const roles = async () =>
    (await rows.selectFrom('subject_roles').selectAll().where('subject_id', '=', `${idp.url}#u-9`).execute())[0]?.roles;
  await expect.poll(roles).toBe('["approver"]');
  expect(await run()).toMatchObject({ status: 'error', error: expect.stringContaining('role approver') as string });
  expect(server.model.requestsTo('reporter')).toEqual([]);
  await as('key-of-root').send('DELETE', `/api/v2/schedules/${body.id}`);
});
