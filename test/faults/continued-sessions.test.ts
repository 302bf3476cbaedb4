import type { Kysely } from 'kysely';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import type { Tables } from '../../src/catalog/schema.ts';
import { sessionWorkflowId } from '../../src/core/temporal-names.ts';
import type { TemporalClient } from '../support/temporal-client.ts';
import { openRows } from '../support/test-database.ts';
import { messageFor } from './support/plan.ts';
import type { SentInput } from './support/sent.ts';
import { sized } from './support/sized.ts';
import { NEVER_IDLE } from './support/world-options.ts';
import { World } from './support/world.ts';

/** Row 16: inputs that arrive while their session continues as new. */

const INPUTS = sized({ brief: 12, full: 24, long: 200 });
const SENDERS = 2;
const EDGES = sized({ brief: 1, full: 2, long: 20 });

/** From this number of events on Temporal suggests continue-as-new, with the next task. */
const MAX_EVENTS = 40;

let it: World;
let operator: TemporalClient;
let rows: Kysely<Tables>;
beforeEach(async () => {
  it = await World.start({
    env: NEVER_IDLE,
    dynamicConfig: {
      'limit.historyCount.suggestContinueAsNew': MAX_EVENTS,
      // Otherwise runs as short as these would each be delayed by a second.
      'history.continueAsNewMinInterval': '20ms',
    },
  });
  onTestFinished(() => it.stop());
  operator = await it.temporal.operator();
  rows = openRows(`sqlite:${it.folder}/catalog.db`);
  onTestFinished(() => rows.destroy());
});

test(
  'inputs at the edge of a continue-as-new are accepted once each',
  { timeout: 300_000 + EDGES * 30_000 },
  async () => {
    const sessionId = await it.session();
    const sender = async (): Promise<void> => {
      for (let i = 0; i < INPUTS / SENDERS; i++) {
        const sent = await send(sessionId);
        expect(sent.outcome).toBe('accepted');
        // Some meet a running turn, some one that has just ended, some an idle session.
        if (i % 3 > 0) await it.recorder.follow(sessionId, sent.turnId ?? '').done;
      }
    };
    await Promise.all(Array.from({ length: SENDERS }, sender));
    let edges = 0;
    // On a very busy machine Temporal may have timed out the task before the input arrives.
    for (let tries = 0; edges < EDGES && tries < 3 * EDGES; tries++) if (await meetsEdge(sessionId)) edges += 1;
    expect(edges, 'inputs that came as their session continued as new').toBe(EDGES);
    await it.check();
  },
);

async function send(sessionId: string): Promise<SentInput> {
  const plan = it.plan({ say: 'one two', tools: [{ name: 'look' }] }, { say: 'three' });
  return it.recorder.send(sessionId, [{ type: 'user.message', content: messageFor(plan) }]);
}

/** A cancel without a running turn: it adds one task. */
async function cancel(sessionId: string): Promise<void> {
  await it.recorder.persist((api) => api.send('POST', `/v1/agents/sessions/${sessionId}/cancel`, {}));
}

/**
 * Sends an input while a worker is executing the task with which the session continues as new. Returns whether the next
 * run has taken it.
 */
async function meetsEdge(sessionId: string): Promise<boolean> {
  const workflowId = sessionWorkflowId(sessionId);
  const untilIdle = async (): Promise<void> => {
    await expect.poll(() => turns(sessionId, (turn) => turn.archived === 0)).toEqual([]);
    await expect.poll(() => operator.isIdle(workflowId)).toBe(true);
  };
  await untilIdle();
  while ((await operator.length(workflowId)) + 1 < MAX_EVENTS) {
    await cancel(sessionId);
    await untilIdle();
  }
  const run = await it.temporal.runOf(workflowId);
  // The worker receives the task, and the server its result, after the input has arrived.
  it.workersLine.hold();
  const cancelled = cancel(sessionId);
  await expect.poll(() => operator.hasTaskAtWorker(workflowId)).toBe(true);
  const sending = send(sessionId);
  await expect
    .poll(async () => {
      const [request] = await turns(sessionId, ({ sequence }) => sequence === null);
      return request !== undefined && (await operator.knowsUpdate(workflowId, request));
    })
    .toBe(true);
  it.workersLine.flow();
  await cancelled;
  const sent = await sending;
  expect(sent.outcome).toBe('accepted');
  await it.recorder.follow(sessionId, sent.turnId ?? '').done;
  const runs = await operator.lineage(workflowId);
  const next = runs[runs.indexOf(run) + 1];
  return next !== undefined && (await operator.accepts(workflowId, next)).includes(sent.turnId ?? '');
}

/** The ids of some of a session's turns and requests. */
async function turns(
  sessionId: string,
  isWanted: (turn: { archived: number; sequence: number | null }) => boolean,
): Promise<string[]> {
  const all = await rows
    .selectFrom('turns')
    .select(['id', 'archived', 'sequence'])
    .where('session_id', '=', sessionId)
    .execute();
  return all.filter(isWanted).map(({ id }) => id);
}
