import { randomBytes } from 'node:crypto';
import { Client, Connection, ScheduleNotFoundError } from '@temporalio/client';
import { sql } from 'kysely';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import type { ScheduleResource, ScheduleRunResource } from '../../../src/api/agents-v2/wire/schedule.ts';
import { loadConfig } from '../../../src/config.ts';
import { Cipher } from '../../../src/encryption/cipher.ts';
import { dataConverterFor } from '../../../src/temporal/data-converter.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { hashOfKey } from '../../../src/auth/api-keys.ts';
import { agentNamed } from '../../support/agents-v2.ts';
import { ApiClient, type Answer } from '../../support/api-client.ts';
import { eventually } from '../../support/eventually.ts';
import { held, say, type Script } from '../../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../../support/test-server.ts';

/** Payloads are bound to their workflows, of which a schedule has many. */
const ENCRYPTION_KEYS = `k:${randomBytes(32).toString('base64')}`;

const KEYS = ['ann:user=key-of-ann', 'bob:user=key-of-bob', 'eve:admin=key-of-eve'].join();

let server: TestServer;
let connection: Connection;
let temporal: Client;
beforeAll(async () => {
  server = await startTestServer({ env: { EVERTURN_API_KEYS: KEYS, EVERTURN_ENCRYPTION_KEYS: ENCRYPTION_KEYS } });
  const { encryptionKeys } = loadConfig({ EVERTURN_ENCRYPTION_KEYS: ENCRYPTION_KEYS });
  const dataConverter = dataConverterFor(new Cipher(encryptionKeys));
  connection = await Connection.connect({ address: inject('temporalAddress') });
  temporal = new Client({
    connection,
    namespace: inject('temporalNamespace'),
    ...(dataConverter && { dataConverter }),
  });
});
afterAll(async () => {
  for (const { id } of await server.database.rows.selectFrom('schedules').select('id').execute()) {
    await temporal.schedule.getHandle(`schedule/${id}`).delete();
  }
  await connection.close();
  await server.stop();
});

const as = (name: string): ApiClient => new ApiClient(server.api.url, `key-of-${name}`);

/** A request with an agent of its own, whose model has these scripts. */
function request(...scripts: Script[]) {
  const name = newId('req');
  server.model.script(name, ...scripts);
  const agent = { name: name.replaceAll('_', '-'), description: 'for the test', environments: [], model: name };
  return { agent, messages: 'Which orders are late?' };
}

/** Once a year, at a time at which no test runs. */
const RARELY = { type: 'cron', expression: '0 0 1 1 *', timezone: 'UTC' };

/** The one clock of these tests: after any time on another clock, a minute would no longer be one of the schedule. */
const LOADED = Date.now();

/** The full minute so many minutes before these tests were loaded. */
const minuteAgo = (minutes: number): Date => new Date((Math.floor(LOADED / 60_000) - minutes) * 60_000);

/**
 * Each of the last minutes, and none of the next: only the test lets it run, with `runAt`. The minutes of UTC are those of
 * Paris.
 */
const RECENTLY = {
  type: 'cron',
  expression: `${Array.from({ length: 20 }, (_, i) => minuteAgo(i + 1).getUTCMinutes()).join()} * * * *`,
  timezone: 'Europe/Paris',
};

async function create(body: object = {}, api = as('ann')): Promise<ScheduleResource> {
  const given = { name: 'Late orders', timing: RARELY, session_request: request(say('None.')), ...body };
  const answer = await api.send<ScheduleResource>('POST', '/api/v2/schedules', given);
  expect(answer.status, JSON.stringify(answer.body)).toBe(201);
  return answer.body;
}

const get = (id: string): Promise<ScheduleResource> => as('ann').get(`/api/v2/schedules/${id}`);

const act = <T = ScheduleResource>(id: string, action: string, body?: object): Promise<Answer<T>> =>
  as('ann').send<T>('POST', `/api/v2/schedules/${id}/${action}`, body);

async function trigger(id: string): Promise<ScheduleRunResource> {
  const { status, body } = await act<ScheduleRunResource>(id, 'trigger');
  expect(status, JSON.stringify(body)).toBe(200);
  return body;
}

async function runsOf(id: string, query = ''): Promise<ScheduleRunResource[]> {
  return (await as('ann').get<{ items: ScheduleRunResource[] }>(`/api/v2/schedules/${id}/runs?size=100${query}`)).items;
}

/** Lets Temporal run a schedule at a time, as if it had been there. Resolves when the run has ended. */
async function runAt(time: Date, id: string): Promise<void> {
  const start = new Date(time.getTime() - 1_000);
  await temporal.schedule.getHandle(`schedule/${id}`).backfill({ start, end: time, overlap: 'ALLOW_ALL' });
  const workflow = `scheduled-run/${id}-${time.toISOString().replace('.000Z', 'Z')}`;
  await eventually(() => temporal.workflow.getHandle(workflow).result());
}

const statusOf = async (sessionId: string | null): Promise<string> =>
  (await as('ann').get<{ status: string }>(`/api/v2/sessions/${sessionId}/status`)).status;

test('a schedule is created, read, listed, changed and deleted', async () => {
  const created = await create({ description: 'Each year', timing: { ...RARELY, timezone: 'Europe/Paris' } });
  const nextYear = new Date().getFullYear() + 1;
  expect(created).toMatchObject({
    name: 'Late orders',
    description: 'Each year',
    timing: { type: 'cron', expression: '0 0 1 1 *', timezone: 'Europe/Paris' },
    session_request: { messages: 'Which orders are late?' },
    paused: false,
    pause_note: null,
    repeats: null,
    sessions_created: 0,
    last_run_at: null,
  });
  expect(created.next_run_times[0]).toBe(`${nextYear - 1}-12-31T23:00:00.000Z`);
  expect(created.next_run_times).toHaveLength(5);
  expect(await get(created.id)).toEqual(created);
  const path = `/api/v2/schedules/${created.id}`;
  const changed = await as('ann').send<ScheduleResource>('PATCH', path, {
    name: 'Orders',
    description: null,
    timing: { expression: '30 6 * * *', timezone: 'UTC' },
    repeats: 2,
  });
  expect(changed.status, JSON.stringify(changed.body)).toBe(200);
  expect(changed.body).toMatchObject({ name: 'Orders', description: null, repeats: 2 });
  expect(changed.body.next_run_times.map((time) => time.slice(11))).toEqual(['06:30:00.000Z', '06:30:00.000Z']);
  const page = await as('ann').get<{ items: ScheduleResource[]; total: number }>('/api/v2/schedules?size=1');
  expect(page).toEqual({ items: [changed.body], total: 1, page: 1 });
  expect((await as('ann').send('DELETE', path)).status).toBe(204);
  expect((await as('ann').send('GET', path)).status).toBe(404);
  expect((await as('ann').send('DELETE', path)).status).toBe(404);
  await expect(temporal.schedule.getHandle(`schedule/${created.id}`).describe()).rejects.toThrow('not found');
});

test('a triggered schedule creates a session with its first turn, and records the run', async () => {
  const { id } = await create();
  const run = await trigger(id);
  expect(run).toMatchObject({ schedule_id: id, status: 'created', error: null, triggered_manually: true });
  await expect.poll(() => statusOf(run.session_id)).toBe('completed');
  expect(await as('ann').get(`/api/v2/sessions/${run.session_id}`)).toMatchObject({
    latest_answer: 'None.',
    request: { messages: [{ message: 'Which orders are late?' }] },
  });
  expect(await runsOf(id)).toEqual([run]);
  expect(await get(id)).toMatchObject({ sessions_created: 0, last_run_at: run.created_at });
  const rows = server.database.rows.selectFrom('session_requests').select('schedule_id');
  expect(await rows.where('schedule_id', '=', id).execute()).toHaveLength(1);
});

test('Temporal runs a schedule at its times, each once', async () => {
  const { id } = await create({ timing: RECENTLY, session_request: request(say('First.'), say('Second.')) });
  const [earlier, later] = [minuteAgo(3), minuteAgo(2)];
  await runAt(later, id);
  const [first] = await runsOf(id);
  expect(first).toMatchObject({
    status: 'created',
    scheduled_for: later.toISOString(),
    triggered_manually: false,
  });
  await expect.poll(() => statusOf(first?.session_id ?? null)).toBe('completed');
  expect(await get(id)).toMatchObject({ sessions_created: 1 });
  await runAt(later, id);
  expect((await runsOf(id)).filter(({ scheduled_for: time }) => time === later.toISOString())).toEqual([first]);
  await runAt(earlier, id);
  const times = async (sort: string) => (await runsOf(id, `&sort=${sort}`)).map(({ scheduled_for: time }) => time);
  const sorted = await times('scheduled_for');
  expect(sorted.slice(0, 2)).toEqual([earlier.toISOString(), later.toISOString()]);
  expect(await times('-scheduled_for')).toEqual(sorted.toReversed());
});

test('a schedule creates no session while its last one is open', async () => {
  const { id } = await create({ session_request: { ...request(say('1'), say('2'), say('3')), idle_timeout_s: 600 } });
  const runs = await Promise.all([trigger(id), trigger(id), trigger(id), trigger(id)]);
  const [created, ...more] = runs.filter(({ status }) => status === 'created');
  expect(more).toEqual([]);
  expect(runs.filter(({ status }) => status === 'skipped_overlap')).toHaveLength(3);
  const sessionId = created?.session_id ?? null;
  await expect.poll(() => statusOf(sessionId)).toBe('idle');
  expect(await trigger(id)).toMatchObject({ status: 'skipped_overlap', session_id: null, error: null });
  expect((await as('ann').send('DELETE', `/api/v2/sessions/${sessionId}`)).status).toBe(204);
  const next = await trigger(id);
  expect(next.status).toBe('created');
  // A deleted schedule leaves its sessions alone.
  expect((await as('ann').send('DELETE', `/api/v2/schedules/${id}`)).status).toBe(204);
  await expect.poll(() => statusOf(next.session_id)).toBe('idle');
});

test('a paused schedule runs only when it is triggered', async () => {
  const { id } = await create({ timing: RECENTLY, session_request: request(say('1'), say('2'), say('3')) });
  const paused = await act(id, 'pause', { note: 'Holidays' });
  expect(paused).toMatchObject({ status: 200, body: { paused: true, pause_note: 'Holidays', next_run_times: [] } });
  expect((await temporal.schedule.getHandle(`schedule/${id}`).describe()).state.paused).toBe(true);
  await runAt(minuteAgo(2), id);
  expect(await runsOf(id)).toEqual([]);
  expect((await trigger(id)).status).toBe('created');
  expect((await act(id, 'pause')).body).toMatchObject({ paused: true, pause_note: null });
  const resumed = await act(id, 'resume');
  expect(resumed).toMatchObject({ status: 200, body: { paused: false, pause_note: null } });
  expect(resumed.body.next_run_times).toHaveLength(5);
  expect((await temporal.schedule.getHandle(`schedule/${id}`).describe()).state.paused).toBe(false);
});

test('a schedule is paused once it has created as many sessions as it was to repeat', async () => {
  const session = request(say('1'), say('2'), say('3'), say('4'));
  const { id, next_run_times: times } = await create({ timing: RECENTLY, repeats: 2, session_request: session });
  expect(times).toHaveLength(2);
  const runAndEnd = async (minutes: number) => {
    await runAt(minuteAgo(minutes), id);
    const [run] = await runsOf(id, '&sort=scheduled_for');
    await expect.poll(() => statusOf(run?.session_id ?? null)).toBe('completed');
  };
  await runAndEnd(3);
  const triggered = await trigger(id);
  await expect.poll(() => statusOf(triggered.session_id)).toBe('completed');
  expect(await get(id)).toMatchObject({ paused: false, sessions_created: 1 });
  await runAndEnd(5);
  const done = { paused: true, sessions_created: 2, next_run_times: [], pause_note: 'All sessions were created: 2.' };
  expect(await get(id)).toMatchObject(done);
  expect((await temporal.schedule.getHandle(`schedule/${id}`).describe()).state.paused).toBe(true);
  expect(await act(id, 'resume')).toMatchObject({ status: 422, body: { detail: [{ loc: ['body', 'repeats'] }] } });
  const path = `/api/v2/schedules/${id}`;
  expect(await as('ann').send('PATCH', path, { repeats: 3 })).toMatchObject({ status: 200, body: { paused: true } });
  expect(await act(id, 'resume')).toMatchObject({ status: 200, body: { paused: false } });
  expect(await as('ann').send('PATCH', path, { repeats: 1 })).toMatchObject({ status: 200, body: { paused: true } });
  // As a change leaves it that arrives while the last session is recorded.
  const { rows } = server.database;
  await rows.updateTable('schedules').set({ paused: 0 }).where('id', '=', id).execute();
  expect(await get(id)).toMatchObject({ paused: false, next_run_times: [] });
  await runAt(minuteAgo(7), id);
  expect(await runsOf(id)).toHaveLength(3);
});

test('the request is resolved at each run, with the rights that the key of its writer has then', async () => {
  const key = `key-of-${newId('key')}`;
  const row = { id: newId('key'), hash: hashOfKey(key), name: 'zoe', role: 'user' as const };
  const { rows } = server.database;
  const insertion = {
    ...row,
    created_at: new Date().toISOString(),
    expires_at: null,
    last_used_at: null,
    revoked_at: null,
  };
  await rows.insertInto('api_keys').values(insertion).execute();
  const zoe = new ApiClient(server.api.url, key);
  const name = newId('req').replaceAll('_', '-');
  server.model.script(name, say('As it was.'), say('As it is.'));
  await as('eve').putAgent(name, { model: { name }, instructions: 'old' });
  const { id } = await create({ timing: RECENTLY, session_request: { agent: name, messages: 'Hello' } }, zoe);
  await runAt(minuteAgo(9), id);
  await as('eve').putAgent(name, { model: { name }, instructions: 'new' });
  const runs = async () =>
    (await as('eve').get<{ items: ScheduleRunResource[] }>(`/api/v2/schedules/${id}/runs`)).items;
  const read = async (one: ScheduleRunResource | undefined) =>
    await as('eve').get<{ request: { agent: object }; status: { status: string } }>(
      `/api/v2/sessions/${one?.session_id}`,
    );
  await expect.poll(async () => (await read((await runs())[0])).status.status).toBe('completed');
  await runAt(minuteAgo(8), id);
  expect((await read((await runs())[0])).request.agent).toMatchObject({ instructions: 'new' });
  expect((await read((await runs())[1])).request.agent).toMatchObject({ instructions: 'old' });
  await expect.poll(async () => (await read((await runs())[0])).status.status).toBe('completed');
  await rows.updateTable('api_keys').set({ role: 'approver' }).where('name', '=', 'zoe').execute();
  await runAt(minuteAgo(7), id);
  expect((await runs())[0]).toMatchObject({
    status: 'error',
    session_id: null,
    error: expect.stringContaining('cannot create sessions'),
  });
  await rows.updateTable('api_keys').set({ role: 'user' }).where('name', '=', 'zoe').execute();
  expect((await as('eve').send('DELETE', `/v1/agents/${name}`)).status).toBeLessThan(300);
  await runAt(minuteAgo(6), id);
  expect((await runs())[0]).toMatchObject({ status: 'error', error: expect.stringContaining('there is no agent') });
  const other = `key-of-${newId('key')}`;
  await rows
    .insertInto('api_keys')
    .values({ ...insertion, id: newId('key'), hash: hashOfKey(other), role: 'admin' })
    .execute();
  await rows.updateTable('api_keys').set({ revoked_at: insertion.created_at }).where('id', '=', row.id).execute();
  await runAt(minuteAgo(5), id);
  expect((await runs())[0]).toMatchObject({ status: 'error', error: expect.stringContaining('PATCH the schedule') });
  const change = { session_request: { agent: agentNamed(name), messages: 'Hello' } };
  expect((await new ApiClient(server.api.url, other).send('PATCH', `/api/v2/schedules/${id}`, change)).status).toBe(
    200,
  );
  await runAt(minuteAgo(4), id);
  expect((await runs())[0]).toMatchObject({ status: 'created' });
});

test('others see no schedule, and an admin cannot let one create sessions with the rights of its owner', async () => {
  const { id } = await create();
  const path = `/api/v2/schedules/${id}`;
  const statuses = async (name: string) => {
    const requests = [
      ['GET', path],
      ['GET', `${path}/runs`],
      ['PATCH', path, { name: 'Mine' }],
      ['POST', `${path}/resume`],
      ['POST', `${path}/trigger`],
      ['POST', `${path}/pause`, {}],
      ['DELETE', path],
    ] as const;
    const found: number[] = [];
    for (const [method, at, body] of requests) found.push((await as(name).send(method, at, body)).status);
    return found;
  };
  expect(await statuses('bob')).toEqual([404, 404, 404, 404, 404, 404, 404]);
  const listed = async (name: string) =>
    (await as(name).get<{ items: ScheduleResource[] }>('/api/v2/schedules?size=100')).items.map((one) => one.id);
  expect(await listed('bob')).not.toContain(id);
  expect(await listed('eve')).toContain(id);
  expect(await statuses('eve')).toEqual([200, 200, 403, 403, 403, 200, 204]);
});

test('what cannot run is rejected, with its place', async () => {
  const session = request();
  const valid = { name: 'x', timing: RARELY, session_request: session };
  const placesOf = async (body: object) => {
    const answer = await as('ann').send<{ detail: { loc?: unknown[]; type: string }[] }>(
      'POST',
      '/api/v2/schedules',
      body,
    );
    return [answer.status, ...answer.body.detail.map(({ loc, type }) => loc?.slice(1).join('.') ?? type)];
  };
  const timed = (timing: object) => ({ ...valid, timing: { ...RARELY, ...timing } });
  const requested = (change: object) => ({ ...valid, session_request: { ...session, ...change } });
  expect(await placesOf({ ...valid, name: '' })).toEqual([422, 'name']);
  expect(await placesOf({ ...valid, name: 'x'.repeat(256) })).toEqual([422, 'name']);
  expect(await placesOf({ ...valid, repeats: 0 })).toEqual([422, 'repeats']);
  expect(await placesOf(timed({ expression: '@daily' }))).toEqual([422, 'timing.expression']);
  expect(await placesOf(timed({ expression: '0 0 0 * * *' }))).toEqual([422, 'timing.expression']);
  expect(await placesOf(timed({ expression: '0 0 31 2 *' }))).toEqual([422, 'timing.expression']);
  expect(await placesOf(timed({ timezone: 'Europe/Atlantis' }))).toEqual([422, 'timing.timezone']);
  expect(await placesOf(timed({ timezone: '+02:00' }))).toEqual([422, 'timing.timezone']);
  expect(await placesOf(timed({ type: 'interval' }))).toEqual([422, 'timing.type']);
  expect(await placesOf(requested({ messages: null }))).toEqual([422, 'session_request.messages']);
  expect(await placesOf(requested({ messages: 'x'.repeat(300_000) }))).toEqual([422, 'session_request']);
  expect(await placesOf(requested({ max_steps: 0 }))).toEqual([422, 'session_request.max_steps']);
  const image = { message: 'x', images: ['data:nothing'] };
  expect(await placesOf(requested({ messages: [image] }))).toEqual([422, 'session_request.messages.0.images.0']);
  expect(await placesOf(requested({ parent_session_id: 'x' }))).toEqual([422, 'session_request.parent_session_id']);
  expect(await placesOf(requested({ agent: 'nobody' }))).toEqual([404, 'agent_not_found']);
  expect((await as('ann').send('GET', '/api/v2/schedules/sch_1')).status).toBe(422);
  expect((await as('ann').send('GET', '/api/v2/schedules?sort=name')).status).toBe(422);
  expect((await as('ann').send('GET', '/api/v2/schedules?sort=%5B%22created_at%22%5D')).status).toBe(200);
});

test('time zones that Temporal may not support are written in a form that it supports', async () => {
  for (const [given, known] of [
    ['europe/paris', 'Europe/Paris'],
    ['US/Eastern', 'America/New_York'],
    ['Etc/UTC', 'UTC'],
  ] as const) {
    const { timing, next_run_times: times } = await create({ timing: { ...RARELY, timezone: given } });
    expect(timing.timezone).toBe(known);
    expect(times).toHaveLength(5);
  }
});

test('a schedule is repaired in Temporal after a crash between its row and Temporal', async () => {
  const { rows } = server.database;
  const [lost, changed, deleted, orphaned] = [
    await create(),
    await create(),
    await create(),
    await create({ timing: RECENTLY }),
  ];
  const inTemporal = async (id: string) => {
    try {
      return await temporal.schedule.getHandle(`schedule/${id}`).describe();
    } catch (error) {
      if (error instanceof ScheduleNotFoundError) return undefined;
      throw error;
    }
  };
  // As a crash leaves them: each row is written, and Temporal does not have it.
  await temporal.schedule.getHandle(`schedule/${lost.id}`).delete();
  await rows.updateTable('schedules').set({ synced_revision: 0 }).where('id', '=', lost.id).execute();
  const to = { cron: '30 6 * * *', revision: 2 };
  await rows.updateTable('schedules').set(to).where('id', '=', changed.id).execute();
  await rows.updateTable('schedules').set({ deleted_at: changed.created_at }).where('id', '=', deleted.id).execute();
  // As a catalog that was restored from a copy leaves it.
  await rows.deleteFrom('schedules').where('id', '=', orphaned.id).execute();
  await server.restart();
  await expect.poll(() => inTemporal(lost.id)).toBeDefined();
  await expect
    .poll(async () => (await inTemporal(changed.id))?.info.nextActionTimes[0]?.toISOString())
    .toMatch(/T06:30/);
  await expect.poll(() => inTemporal(deleted.id)).toBeUndefined();
  await expect.poll(() => rows.selectFrom('schedules').select('id').where('id', '=', deleted.id).execute()).toEqual([]);
  await runAt(minuteAgo(2), orphaned.id);
  expect(await inTemporal(orphaned.id)).toBeUndefined();
});

test('a schedule that Temporal has lost is created again when housekeeping begins', async () => {
  const { id } = await create();
  await temporal.schedule.getHandle(`schedule/${id}`).delete();
  await server.restart();
  await expect.poll(async () => (await get(id)).next_run_times).toHaveLength(5);
});

test('an activity that is repeated after it has created the session creates no second one', async () => {
  const session = request(say('Once.'), say('Twice.'));
  const { id } = await create({ timing: RECENTLY, session_request: session });
  const { rows } = server.database;
  await sql`create trigger crash before insert on schedule_runs begin select raise(abort, 'crash'); end`.execute(rows);
  const ended = runAt(minuteAgo(2), id);
  const sessions = () =>
    rows.selectFrom('session_requests').select('session_id').where('schedule_id', '=', id).execute();
  await expect.poll(sessions).toHaveLength(1);
  await expect.poll(() => server.model.requestsTo(session.agent.model)).toHaveLength(1);
  expect(await runsOf(id)).toEqual([]);
  await sql`drop trigger crash`.execute(rows);
  await ended;
  expect(await runsOf(id)).toMatchObject([{ status: 'created' }]);
  expect(await sessions()).toHaveLength(1);
  expect(server.model.requestsTo(session.agent.model)).toHaveLength(1);
});

test('a time that is too long ago is recorded, and creates no session', async () => {
  const time = new Date(Math.floor(LOADED / 3_600_000 - 2) * 3_600_000);
  const { id } = await create({ timing: { ...RARELY, expression: `0 ${time.getUTCHours()} * * *` } });
  await runAt(time, id);
  const [run] = await runsOf(id);
  expect(run).toMatchObject({ status: 'error', session_id: null, scheduled_for: time.toISOString() });
  expect(run?.error).toContain('within 60 minutes');
});

test('a run that the limits refuse is skipped, and leaves no session', async () => {
  await server.restart({ EVERTURN_TURNS_PER_SUBJECT: '1' });
  const { id } = await create();
  const answer = held(
    (call) => call.text('Let me '),
    (call) => call.text('see.').finish(),
  );
  const busy = await as('ann').send<{ id: string }>('POST', '/api/v2/sessions', request(answer.script));
  await expect.poll(() => statusOf(busy.body.id)).toBe('running');
  const run = await trigger(id);
  expect(run).toMatchObject({ status: 'skipped_quota', session_id: null });
  expect(run.error).toContain('1 of your turns run');
  const sessions = server.database.rows
    .selectFrom('session_requests')
    .innerJoin('sessions', 'sessions.id', 'session_requests.session_id')
    .where('schedule_id', '=', id)
    .where('deleted_at', 'is', null)
    .select('id');
  expect(await sessions.execute()).toEqual([]);
  answer.release();
  await expect.poll(() => statusOf(busy.body.id)).toBe('completed');
  await expect.poll(async () => (await trigger(id)).status).toBe('created');
  expect(await sessions.execute()).toHaveLength(1);
});
