import { afterAll, beforeAll, expect, test } from 'vitest';
import { sessionWorkflowId } from '../../src/core/temporal-names.ts';
import { eventually } from '../support/eventually.ts';
import type { TemporalClient } from '../support/temporal-client.ts';
import { openCatalog } from './support/archived.ts';
import { messageFor } from './support/plan.ts';
import type { SentInput } from './support/sent.ts';
import { sized } from './support/sized.ts';
import { World } from './support/world.ts';

/** Inputs that arrive while the workflow of their idle session ends. */

const ROUNDS = sized({ brief: 1, full: 3, long: 20 });

/** Long enough that a round is prepared before it ends. */
const IDLE_SECONDS = 4;

let it: World;
let operator: TemporalClient;
beforeAll(async () => {
  it = await World.start({ env: { EVERTURN_SESSION_IDLE_SECONDS: String(IDLE_SECONDS) } });
  operator = await it.temporal.operator();
});
afterAll(() => it.checkAndStop());

async function send(sessionId: string): Promise<SentInput> {
  const plan = it.plan({ say: 'one two', tools: [{ name: 'look' }] }, { say: 'three' });
  return it.recorder.send(sessionId, [{ type: 'user.message', content: messageFor(plan) }]);
}

interface RestingSession {
  sessionId: string;
  workflowId: string;
  run: string;
}

/** A session that is at rest, whose workflow runs. */
async function restingSession(): Promise<RestingSession> {
  const sessionId = await it.session();
  const { turnId = '' } = await send(sessionId);
  await it.recorder.follow(sessionId, turnId).done;
  const workflowId = sessionWorkflowId(sessionId);
  await eventually(async () => expect((await eventTypes(workflowId)).at(-1)).toMatch(/^timerStarted/));
  return { sessionId, workflowId, run: await it.temporal.runOf(workflowId) };
}

/** A session whose idle time ends after its worker has been stopped. On a slow machine it may end before: then another. */
async function stoppedAtRest(stop: () => unknown, goOn: () => unknown): Promise<RestingSession> {
  for (;;) {
    const session = await restingSession();
    await stop();
    if (!(await eventTypes(session.workflowId, session.run)).join().includes('timerFired')) return session;
    await goOn();
  }
}

async function eventTypes(workflowId: string, runId?: string): Promise<string[]> {
  const { events } = await operator.client.workflow.getHandle(workflowId, runId).fetchHistory();
  return (events ?? []).map(({ attributes }) => attributes ?? '');
}

async function untilFired(workflowId: string, run: string): Promise<void> {
  await eventually(async () => expect((await eventTypes(workflowId, run)).join()).toContain('timerFired'));
}

/** Resolves when the Update of an input waits in Temporal for a worker. */
async function untilSent(workflowId: string, sessionId: string): Promise<void> {
  await eventually(async () => {
    const catalog = openCatalog(it.folder);
    const found = catalog.prepare('SELECT id FROM turns WHERE session_id = ? AND sequence IS NULL').get(sessionId);
    catalog.close();
    expect(await operator.knowsUpdate(workflowId, String(found?.['id']))).toBe(true);
  });
}

/** @returns the id of the turn */
async function carriedOut(sessionId: string, sending: Promise<SentInput>): Promise<string> {
  const { outcome, turnId = '' } = await sending;
  expect(outcome).toBe('accepted');
  expect(await it.recorder.follow(sessionId, turnId).done).toMatchObject({ status: 'done' });
  return turnId;
}

test('an input that waits beside the end of the idle time is accepted by the run that was to end', async () => {
  const [worker] = it.workers;
  for (let round = 0; round < ROUNDS; round++) {
    const kill = () => it.fault(() => worker?.kill());
    const { sessionId, workflowId, run } = await stoppedAtRest(kill, () => it.up());
    await untilFired(workflowId, run);
    const sending = send(sessionId);
    await untilSent(workflowId, sessionId);
    await it.up();
    const turnId = await carriedOut(sessionId, sending);
    expect(await operator.accepts(workflowId, run)).toContain(turnId);
  }
});

test.each(['tells Temporal', 'is killed'])(
  'an input that arrives while a worker ends the workflow, and before it %s, is accepted once',
  async (how) => {
    const [worker] = it.workers;
    for (let round = 0; round < ROUNDS; round++) {
      const line = it.workersLine;
      // The worker gets the task, and Temporal its result, after the input has arrived.
      const { sessionId, workflowId, run } = await stoppedAtRest(
        () => line.hold(),
        () => line.flow(),
      );
      await untilFired(workflowId, run);
      await eventually(async () => expect(await operator.hasTaskAtWorker(workflowId)).toBe(true));
      const sending = send(sessionId);
      await untilSent(workflowId, sessionId);
      if (how === 'is killed') await it.fault(() => worker?.kill());
      line.flow();
      await it.up();
      const turnId = await carriedOut(sessionId, sending);
      const runs = [run, await it.temporal.runOf(workflowId)];
      const accepted = await Promise.all([...new Set(runs)].map((one) => operator.accepts(workflowId, one)));
      expect(accepted.flat().filter((id) => id === turnId)).toHaveLength(1);
    }
  },
);
