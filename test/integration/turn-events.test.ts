import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { measureTurnEvents } from '../../bench/measurements/turn-events.ts';
import { say } from '../support/scripted-model.ts';
import { TemporalClient } from '../support/temporal-client.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** Counted in the histories: three tasks of the session, and two tasks and an activity of the turn. */
const EVENTS_PER_TURN = { tasks_per_turn: 5, activities_per_turn: 1, timers_per_turn: 0 };

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

test('a plain turn in a warm session has five workflow tasks, one activity and no timer', async () => {
  const chat = await server.chat();
  const turn = async (): Promise<string> => {
    chat.script(say('Hello.'));
    const reader = chat.turn('Hi');
    await reader.end();
    return reader.turnId();
  };
  await turn();
  const { sessionId } = chat;
  expect(await measureTurnEvents(temporal.client, { sessionId, turn, turns: 3 })).toEqual(EVENTS_PER_TURN);
});
