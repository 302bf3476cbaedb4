import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { eventually } from '../support/eventually.ts';
import type { ApiClient } from '../support/api-client.ts';
import { everturn } from '../support/command-line.ts';
import { unpackRecorded } from '../support/recorded-folder.ts';
import { ServerProcess } from '../support/server-process.ts';

const SESSIONS = '/v1/agents/sessions';

/** It starts two servers, each with a Temporal of its own. */
const TIMEOUT_MS = 180_000;

/** The tool calls for which a turn has ended, each with its thread. */
async function pendingCalls(api: ApiClient, sessionId: string, turnId: string) {
  const { data } = await api.get(`${SESSIONS}/${sessionId}/turns/${turnId}`);
  const required: { thread_id: string; tool_calls: { id: string }[] }[] = data.state.required_actions;
  return required.flatMap(({ thread_id, tool_calls }) => tool_calls.map(({ id }) => ({ thread_id, tool_call_id: id })));
}

test(
  'a data folder of 937bacbd: its ended turns are as before, its open ones are ended, its sessions continue',
  async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'everturn-old-data-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const { turns, reads } = await unpackRecorded('937bacbd', folder);
    const dataDir = path.join(folder, 'data');
    const env = { EVERTURN_SHUTDOWN_SECONDS: '1' };
    const of = (name: string) => turns[name] ?? expect.fail(`no turn ${name} was recorded`);
    const open = ['waits', 'runs', 'is queued'].map(of);

    const refused = await everturn(['start'], { EVERTURN_DATA: dataDir, EVERTURN_PORT: '0', ...env });
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('--end-old-turns') });
    const named = refused.stderr.match(/turn_\w+/g)?.toSorted();
    expect(named).toEqual(open.map(({ turnId }) => turnId).toSorted());

    const server = await ServerProcess.prepare(dataDir, env);
    onTestFinished(() => server.stop().then(() => undefined));
    await server.start({}, ['--end-old-turns']);
    const { api } = server;
    for (const [at, read] of Object.entries(reads)) expect(await api.get(at), at).toMatchObject(read);
    const { sessionId: usedTools, turnId: withTools } = of('used tools');
    const spans = await api.list<object>(`${SESSIONS}/${usedTools}/turns/${withTools}/timeline`);
    expect(spans).toContainEqual(
      expect.objectContaining({ kind: 'model_call', provider: expect.any(String), pending: false }),
    );
    expect(spans).toContainEqual(expect.objectContaining({ kind: 'tool_call', outcome: 'succeeded', pending: false }));
    for (const { sessionId, turnId } of open) {
      expect(await api.followTurn(sessionId, turnId).end()).toMatchObject({
        status: 'error',
        message: expect.stringContaining('--end-old-turns'),
      });
    }
    expect(await api.list('/v1/agents/actions?agent_name=waits')).toEqual([]);
    // Its rows have no states: they are derived while the server runs.
    const inState = async (state: string) =>
      (await api.list<{ id: string }>(`${SESSIONS}?state=${state}`, 100)).map(({ id }) => id);
    await eventually(async () => {
      expect(await inState('waiting_person')).toEqual(expect.arrayContaining([of('asks for approval').sessionId]));
      expect(await inState('idle')).toContain(of('used tools').sessionId);
      expect(await inState('error')).toEqual(expect.arrayContaining([of('waits').sessionId, of('runs').sessionId]));
    });

    const approve = { type: 'user.tool_approval', approval: { status: 'allow' } };
    const fill = {
      type: 'user.tool_response',
      content: JSON.stringify({ action: 'accept', content: { word: 'script' } }),
    };
    for (const [name, answer, content] of [
      ['asks for approval', approve, 'Noted.'],
      ['asks in a sub-agent', approve, 'Noted.'],
      ['asks in a form', fill, 'Deleted 1 notes.'],
    ] as const) {
      const { sessionId, turnId } = of(name);
      const calls = await pendingCalls(api, sessionId, turnId);
      expect(calls).toHaveLength(1);
      const answered = api.turn(
        sessionId,
        calls.map((call) => ({ ...answer, ...call })),
      );
      expect(await answered.end(), name).toMatchObject({ status: 'done', required_actions: [] });
      await answered.next((event) => event.type === 'tool.response' && event.content.includes(content));
    }
    for (const name of ['used tools', 'waits', 'runs']) {
      expect(await api.turn(of(name).sessionId, 'show my notes').end(), name).toMatchObject({ status: 'done' });
    }
  },
  TIMEOUT_MS,
);
