import { expect, onTestFinished, test } from 'vitest';
import { sessionWorkflowId } from '../../workflows/ids.ts';
import { messageFor } from './support/plan.ts';
import { World } from './support/world.ts';

/** Row 16: inputs that come while their session continues as new. */

const INPUTS = process.env['LONG'] ? 200 : 24;
const SENDERS = 2;

test('inputs at the edge of a continue-as-new are accepted once each', async () => {
  const it = await World.start({
    dynamicConfig: {
      'limit.historyCount.suggestContinueAsNew': 40,
      // Runs as short as these would otherwise be held back for a second each.
      'history.continueAsNewMinInterval': '20ms',
    },
  });
  onTestFinished(() => it.stop());
  const sessionId = await it.session();
  const sender = async (): Promise<void> => {
    for (let i = 0; i < INPUTS / SENDERS; i++) {
      const plan = it.plan({ say: 'one two', tools: [{ name: 'look' }] }, { say: 'three' });
      const sent = await it.recorder.send(sessionId, [{ type: 'user.message', content: messageFor(plan) }]);
      expect(sent.outcome).toBe('accepted');
      // Some meet a turn that runs, some one that has just ended, some a session that has nothing to do.
      if (i % 3 > 0) await it.recorder.follow(sessionId, sent.turnId ?? '').done;
    }
  };
  await Promise.all(Array.from({ length: SENDERS }, sender));
  await it.check();
  const operator = await it.temporal.operator();
  await expect.poll(() => operator.runs(sessionWorkflowId(sessionId))).toBeGreaterThan(1);
});
