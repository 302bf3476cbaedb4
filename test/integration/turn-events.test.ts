import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { measureTurnEvents } from '../../bench/measurements/turn-events.ts';
import { say } from '../support/scripted-model.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** Three of the session, and two of the turn. */
const MOST_TASKS_PER_TURN = 5;

let server: TestServer;
let temporal: TemporalClient;
beforeAll(async () => {
  server = await startTestServer();
  temporal = await TemporalClient.connect({
    address: inject('temporalAddress'),
    namespace: inject('temporalNamespace'),
  });
});
afterAll(async () => {
  await temporal.close();
  await server.stop();
});

test('a plain turn in a warm session has at most five workflow tasks, one activity and no timer', async () => {
  const chat = await server.chat();
  const turn = async (): Promise<string> => {
    chat.script(say('Hello.'));
    const reader = chat.turn('Hi');
    await reader.end();
    return reader.turnId();
  };
  await turn();
  const { sessionId } = chat;
  const { tasks_per_turn: tasks, ...rest } = await measureTurnEvents(temporal.client, { sessionId, turn, turns: 3 });
  expect(rest).toEqual({ activities_per_turn: 1, timers_per_turn: 0 });
  // Two of the session's may be one on a slow machine: the start of the turn and its end.
  expect(tasks).toBeLessThanOrEqual(MOST_TASKS_PER_TURN);
});
