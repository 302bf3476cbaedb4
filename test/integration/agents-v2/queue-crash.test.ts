import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fromUuid } from '../../../src/api/agents-v2/session-ids.ts';
import { AgentSession, agentNamed } from '../../support/agents-v2.ts';
import { eventually } from '../../support/eventually.ts';
import { say, ScriptedModel } from '../../support/scripted-model.ts';
import { ServerProcess } from '../../support/server-process.ts';

/** `kill -9` of a server with a queue; the embedded Temporal survives. */

let dataDir: string;
let model: ScriptedModel;
let server: ServerProcess;
beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-queue-'));
  model = await ScriptedModel.start();
  server = await ServerProcess.prepare(dataDir, {
    EVERTURN_AGENT_SESSIONS: '2',
    OPENAI_API_KEY: 'x',
    OPENAI_BASE_URL: model.url,
  });
  await server.start();
});
afterAll(async () => {
  await server.stop();
  await model.stop();
  await rm(dataDir, { recursive: true, force: true });
});

test('whenever the server is killed, each session in the queue begins once', async () => {
  model.otherwise = say('done');
  const sessions: AgentSession[] = [];
  for (let i = 0; i < 8; i++) {
    const request = { agent: agentNamed('queued'), messages: `number ${i}` };
    sessions.push(await AgentSession.create(server.api, request));
  }
  const ended = () => sessions.map(async (session) => (await session.status()).status === 'completed');
  const count = async () => (await Promise.all(ended())).filter(Boolean).length;
  // Each time, some have ended, and the next ones are being admitted.
  for (const atLeast of [1, 3, 5]) {
    await eventually(async () => expect(await count()).toBeGreaterThanOrEqual(atLeast));
    await server.kill();
    await server.start();
  }
  await eventually(async () => expect(await count()).toBe(sessions.length));
  for (const [i, session] of sessions.entries()) {
    const turns = await server.api.list(`/v1/agents/sessions/${fromUuid(session.id)}/turns`, 25);
    expect([i, turns.length]).toEqual([i, 1]);
    const { events } = await session.settle();
    const said = events.flatMap(({ data }) => ('kind' in data && data.kind === 'message_event' ? data.content : []));
    expect(said).toEqual([`number ${i}`]);
  }
});
