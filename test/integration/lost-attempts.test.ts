import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { use, type Script } from '../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

/** Blocks this whole process, so that no heartbeat is sent, as a much too large response would. */

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: { tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' }] },
  });
});
afterAll(() => server.stop());

const STALL_MS = 6_000;
/** In between, the process learns that its attempt timed out. */
const BREATH_MS = 2_000;

/** Until the response is no longer awaited. */
const stall: Script = async (call) => {
  for (let isOver = false; !isOver;) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, STALL_MS);
    isOver = await Promise.race([call.closed.then(() => true), sleep(BREATH_MS, false)]);
  }
};

test(
  'a model call that stalls its worker each time ends its turn after five attempts',
  { timeout: 180_000 },
  async () => {
    // The first call of a turn may be speculative, so the second one stalls.
    const look = use({ name: 'look', args: {} });
    const chat = await server.chat({ scripts: [look, ...Array.from({ length: 20 }, () => stall)], spec: onTestServer });
    const reader = chat.turn('look');
    const end = await reader.end();
    expect(end).toMatchObject({ status: 'error', message: expect.stringContaining('5 attempts') });
    // The stall may also break the connection of an attempt, which then fails instead of being lost: it is retried, and
    // counted as unreported too.
    const unreported = end.status === 'error' ? end.metrics?.unreported_attempts : undefined;
    expect(unreported).toBeGreaterThanOrEqual(5);
    expect(chat.requests().length).toBeLessThan(1 + 10);
  },
);
