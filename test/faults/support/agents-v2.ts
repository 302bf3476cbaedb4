import { setTimeout as sleep } from 'node:timers/promises';
import { fromUuid } from '../../../src/api/agents-v2/session-ids.ts';
import type { SessionResource, SessionStatus } from '../../../src/api/agents-v2/wire/session.ts';
import type { ToolCallRequest } from '../../../src/api/agents-v2/wire/events.ts';
import type { TurnResource } from '../../../src/api/sessions/wire/resources.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { messageFor, type Plan } from './plan.ts';
import { PAUSE_MS } from './persistence.ts';
import type { RecordedTurn, Recorder } from './recorder.ts';
import type { Subject } from './subjects.ts';

/**
 * Creates a session through the Agents API v2, with a message, as its SDKs do: the request is repeated with its key until
 * there is a response. Returns its turns as the Sessions API has them.
 */
export async function createThere(
  recorder: Recorder,
  { agent, plan, by }: { agent: string; plan: Plan; by: Subject },
): Promise<{ sessionId: string; turns: RecordedTurn[] }> {
  const at = performance.now();
  const body = { agent, messages: messageFor(plan), idle_timeout_s: 600 };
  const headers = { 'idempotency-key': newId('req') };
  const create = () =>
    recorder.persist((api) => api.send<SessionResource>('POST', '/api/v2/sessions', body, headers), { as: by });
  const created = await create();
  if (created.status !== 201) throw new Error(`${created.status} ${JSON.stringify(created.body)}`);
  const sessionId = fromUuid(created.body.id);
  recorder.owners.set(sessionId, by);
  recorder.followSession(sessionId);
  const path = `/v1/agents/sessions/${sessionId}/turns`;
  const listed = await recorder.persist((api) => api.send<{ data: TurnResource[] }>('GET', path), { as: by });
  const input = [{ type: 'user.message', content: messageFor(plan) }];
  const turns = listed.body.data.map(({ id: turnId }) => {
    recorder.inputs.push({ sessionId, input, outcome: 'accepted', turnId, at });
    return recorder.follow(sessionId, turnId);
  });
  return { sessionId, turns };
}

/** Waits until the session has one of these states. */
export async function statusThere(recorder: Recorder, sessionId: string, ...names: string[]): Promise<SessionStatus> {
  const reader = recorder.events.find((one) => one.sessionId === sessionId);
  for (;;) {
    const status = await reader?.status().catch(() => undefined);
    if (status && names.includes(status.status)) return status;
    await sleep(PAUSE_MS);
  }
}

/** Sends the result of a call as the SDKs do: a 409 means that it has one. */
export async function resultThere(recorder: Recorder, sessionId: string, call: ToolCallRequest): Promise<void> {
  const reader = recorder.events.find((one) => one.sessionId === sessionId);
  const body = { kind: 'tool_result', tool_req: call, result: `the result of ${call.id}` };
  const { status } = await recorder.persist((api) => api.send('POST', `${reader?.path}/tool_results`, body), {
    as: recorder.ownerOf(sessionId),
  });
  if (status !== 202 && status !== 409) throw new Error(`a result was answered with ${status}`);
  const item = { type: 'user.tool_response', thread_id: 'main', tool_call_id: call.id, content: body.result };
  recorder.responses.push({ sessionId, item, response: 200 });
}
