import { expect, onTestFinished, test } from 'vitest';
import { turnWorkflowId } from '../../src/core/temporal-names.ts';
import { folded } from '../support/api-client.ts';
import type { ServerProcess } from '../support/server-process.ts';
import type { RecordedTurn } from './support/recorder.ts';
import { World } from './support/world.ts';

/** Row 9: a worker freezes until it counts as dead, and then resumes. */

test('the results of a worker that was frozen until it counted as dead are ignored', async () => {
  // At this level the SDK logs how attempts end.
  const it = await World.start({ env: { LOG_LEVEL: 'trace' } });
  onTestFinished(() => it.stop());
  const [zombie] = it.workers;
  if (!zombie) throw new Error('there is one');
  // Each attempt calls another tool with the same arguments; the second also calls one that needs an approval.
  const tools = ['look', 'pay', 'refund'].map((name) => ({ name }));
  const speech = it.plan(
    { say: 'one two three four five', sayFirst: 'uno dos tres cuatro cinco', hold: [2, 3], shuffles: true, tools },
    { say: 'And on.' },
  );
  const payment = it.plan(
    { say: 'I pay.', tools: [{ name: 'pay', args: { hold: 'payment' } }] },
    { say: 'Who knows?' },
  );
  const speaking = await it.turn(await it.session(), speech);
  const paying = await it.turn(await it.session(), payment);
  await speaking.says('uno dos');
  await expect.poll(() => it.mcp.count('tools/call')).toBe(1);
  for (const one of it.bystanders) await one.speaking;
  const other = await it.addWorker();
  await it.fault(() => zombie.pause());
  // The rest of the model's answer, and the tool's result, are in its sockets.
  it.planned.goOn(speech);
  it.ledger.goOn('payment');
  await speaking.says('one two three');
  expect(await paying.done).toMatchObject({ status: 'done', output: { content: 'Who knows?' } });
  zombie.goOn();
  // Temporal rejects its results, unless it was frozen for so long that the SDK gives the attempts up.
  await expect.poll(() => hasEnded(zombie, speaking, 'callModel')).toBe(true);
  await expect.poll(() => hasEnded(zombie, paying, 'callTool')).toBe(true);
  // The frozen worker still holds the workflow, may hold the first attempt's message too, and runs the tools.
  it.planned.goOn(speech, 1);
  const [, refund = ''] = speech.steps[0]?.tools?.map(({ id }) => id) ?? [];
  expect(await speaking.done).toMatchObject({ required_actions: [{ tool_calls: [{ id: refund }] }] });
  // It also runs the approved call.
  await it.fault(() => other.stop());
  const approved = await it.decide(speaking.sessionId, 'allow', refund);
  expect(await approved.done).toMatchObject({ status: 'done', output: { content: 'And on.' } });
  expect(folded(paying.frames)).toContainEqual(
    expect.objectContaining({ type: 'tool.response', outcome: 'unknown_outcome' }),
  );
  await it.check();
});

/** Whether a worker has ended a first attempt at an activity of a turn, with a result or without. */
function hasEnded({ output }: ServerProcess, { turnId }: RecordedTurn, activity: string): boolean {
  const first = `"attempt":1,[^\n]*"activityType":"${activity}","workflowId":"${turnWorkflowId(turnId)}"`;
  return new RegExp(`${first}[^\n]*"msg":"Activity (completed|failed)`).test(output);
}
