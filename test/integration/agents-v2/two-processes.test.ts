import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, inject, test, vi } from 'vitest';
import { newId } from '../../../src/engine/new-id.ts';
import type { ToolCallRequest } from '../../../src/api/agents-v2/wire/events.ts';
import { AgentSession, agentNamed, kindsOf } from '../../support/agents-v2.ts';
import { TestRedis } from '../../support/redis.ts';
import { held, say, ScriptedModel, use } from '../../support/scripted-model.ts';
import { ServerProcess } from '../../support/server-process.ts';
import { createTestDatabase, type TestDatabase } from '../../support/test-database.ts';

// Each test starts several processes, which on a busy machine takes longer than the test itself.
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

/** Clients of the Agents API v2 whose requests reach two API processes alternately. */

let folder: string;
let database: TestDatabase;
let redis: TestRedis;
let model: ScriptedModel;
let apis: [ServerProcess, ServerProcess];
let worker: ServerProcess;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-two-'));
  [redis, model, database] = await Promise.all([TestRedis.start(), ScriptedModel.start(), createTestDatabase(folder)]);
  const env = {
    EVERTURN_TASK_QUEUE: newId('req'),
    EVERTURN_REQUESTS_PER_MINUTE: '0',
    DATABASE_URL: database.url,
    REDIS_URL: redis.url,
    OPENAI_API_KEY: 'x',
    OPENAI_BASE_URL: model.url,
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: inject('temporalNamespace'),
  };
  apis = [await ServerProcess.prepare(folder, env, 'api'), await ServerProcess.prepare(folder, env, 'api')];
  worker = await ServerProcess.prepare(folder, env, 'worker');
  await Promise.all([...apis, worker].map((part) => part.start()));
});
afterAll(async () => {
  for (const part of [...apis, worker]) await part.stop();
  await Promise.all([redis.down(), model.stop(), database.close()]);
  await rm(folder, { recursive: true, force: true });
});

/** A session through each of the processes; which one is the first alternates. */
async function begin(n: number, request: object): Promise<[AgentSession, AgentSession]> {
  const [one, other] = n % 2 === 0 ? apis : [apis[1], apis[0]];
  const session = await AgentSession.create(one.api, { idle_timeout_s: 600, ...request });
  return [session, new AgentSession(other.api, session.id)];
}

const SESSIONS = [0, 1, 2, 3, 4, 5];
const TURNS = [1, 2, 3, 4, 5];

test('events settled in one process can be read from the other one, whether that follows the session or not', async () => {
  await Promise.all(
    SESSIONS.map(async (n) => {
      const name = `settled${n}`;
      model.script(name, say('First.'));
      let [here, there] = await begin(n, { agent: agentNamed(name), messages: 'Hi' });
      for (const turn of TURNS) {
        // A reader at the other process, which thereby follows the turn, in every second round.
        const known = (await there.drain()).length;
        const waiting = turn % 2 === 0 ? there.changes(`from_index=${known}&wait_for_seconds=2`) : undefined;
        await here.until('idle');
        const events = await there.drain();
        expect(kindsOf(events).at(-1), `turn ${turn} of session ${n}`).toBe('ActiveStateChangeEvent');
        expect(kindsOf(events).filter((kind) => kind === 'answer_event').length).toBe(turn);
        expect(await here.drain()).toEqual(events);
        await waiting;
        [here, there] = [there, here];
        model.script(name, say(`Turn ${turn}.`));
        expect((await there.say(`And ${turn}?`)).status).toBe(202);
      }
    }),
  );
});

test('a message to an idle session is seen by the other process as soon as it is accepted', async () => {
  await Promise.all(
    SESSIONS.map(async (n) => {
      const name = `flips${n}`;
      model.script(name, say('First.'));
      let [here, there] = await begin(n, { agent: agentNamed(name), messages: 'Hi' });
      for (const turn of TURNS) {
        await here.until('idle');
        expect((await there.status()).status).toBe('idle');
        const answer = held(
          () => undefined,
          (call) => call.text(`Turn ${turn}.`).finish(),
        );
        model.script(name, answer.script);
        expect((await here.say(`And ${turn}?`)).status).toBe(202);
        expect((await there.status()).status, `turn ${turn} of session ${n}`).toMatch(/^(pending|running)$/);
        answer.release();
        const { events } = await there.settle();
        expect(events.findLast(({ data }) => 'answer' in data)).toMatchObject({ data: { answer: `Turn ${turn}.` } });
        [here, there] = [there, here];
      }
    }),
  );
});

test('a call that one process shows can be answered through the other one, which is about to receive it', async () => {
  const lookup = { name: 'lookup', description: 'looks it up', input_schema: { type: 'object' } };
  const result = (tool_req: ToolCallRequest) => ({ kind: 'tool_result', tool_req, result: 1 });
  await Promise.all(
    SESSIONS.map(async (n) => {
      const name = `tools${n}`;
      model.script(name, ...TURNS.map((turn) => use({ name: 'lookup', id: `call${turn}` })), say('Found.'));
      let [here, there] = await begin(n, { agent: agentNamed(name, { tools: [lookup] }), messages: 'Look.' });
      for (const turn of TURNS) {
        const known = (await there.drain()).length;
        // It follows the turn, and may receive the call later.
        const waiting = there.changes(`from_index=${known}&wait_for_seconds=5`);
        const call = await pendingCall(here, `call${turn}`);
        expect((await there.post('tool_results', result(call))).status, `call ${turn} of session ${n}`).toBe(202);
        await waiting;
        [here, there] = [there, here];
      }
      const { status, events } = await here.settle();
      expect([status.status, status.pending_tool_calls]).toEqual(['idle', []]);
      expect(kindsOf(events).filter((kind) => kind === 'tool_result').length).toBe(TURNS.length);
      expect(await there.drain()).toEqual(events);
    }),
  );
});

/** Polls the state of a session, without a pause, until it waits for the result of this call. */
async function pendingCall(session: AgentSession, id: string): Promise<ToolCallRequest> {
  for (;;) {
    const { pending_tool_calls: calls } = await session.status();
    const call = calls?.find((one) => one.id === id);
    if (call) return call;
  }
}
