import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { folded } from '../support/api-client.ts';
import { approval, messageFor, type Plan } from './support/plan.ts';
import type { RecordedTurn } from './support/recorder.ts';
import type { SentInput } from './support/sent.ts';
import { World } from './support/world.ts';

/** Row 4: Temporal's server is unavailable during model calls, tool calls and pending decisions. */

const TEXT = 'one two three four five';

let it: World;
beforeAll(async () => {
  // The default. A longer outage costs the outcome of a tool.
  it = await World.start({ env: { EVERTURN_TOOL_HEARTBEAT_SECONDS: '60' } });
});
afterAll(() => it.checkAndStop());

type Outage = [leave: () => Promise<void>, comeBack: () => Promise<void>];

const OUTAGES: Record<string, () => Outage> = {
  'was killed': () => [() => it.temporal.down(), () => it.temporal.up()],
  hangs: () => [() => it.temporal.hang(), () => it.temporal.goOn()],
};

const SECONDS = process.env['LONG'] ? [5, 30] : [5];

test.each(SECONDS.flatMap((seconds) => Object.keys(OUTAGES).map((what) => ({ seconds, what }))))(
  'for $seconds s its server $what: nothing is lost, and nothing is reported as done that is not',
  async ({ seconds, what }) => {
    const outage = `${seconds} s ${what}`;
    const [leave, comeBack] = OUTAGES[what]!();
    // Half of the running work ends while Temporal is unavailable, the other half after that.
    const speeches = ['during', 'after'].map(() =>
      it.plan({ say: TEXT, hold: 3, shuffles: true, tools: [{ name: 'look' }, { name: 'pay' }] }, { say: 'And on.' }),
    );
    const works = ['pay', 'sync'].flatMap((name) =>
      ['during', 'after'].map((when) =>
        it.plan({ say: 'I do it.', tools: [{ name, args: { hold: `${outage} ${when}` } }] }, { say: 'Done.' }),
      ),
    );
    const refund = it.plan({ say: 'May I?', tools: [{ name: 'refund' }] }, { say: 'I have.' });
    const asking = await begin(refund);
    expect(await asking.done).toMatchObject({ status: 'done', required_actions: [{}] });
    const running = await Promise.all([...speeches, ...works].map(begin));
    await Promise.all(running.slice(0, speeches.length).map((turn) => turn.words(3)));
    await Promise.all(works.map((plan) => it.ledger.started(callOf(plan))));
    const idle = await it.session();

    await it.fault(leave);
    const over = sleep(seconds * 1_000);
    let isOver = false;
    const inputs: [string, Record<string, unknown>[]][] = [
      [idle, [{ type: 'user.message', content: messageFor(it.plan({ say: TEXT })) }]],
      [asking.sessionId, [approval('allow', callOf(refund))]],
    ];
    const sent = inputs.map(async ([sessionId, input]) => {
      const one = await it.recorder.send(sessionId, input);
      expect(isOver, 'whether an input is accepted before Temporal is back').toBe(true);
      return one;
    });
    it.planned.goOn(speeches[0]!);
    it.ledger.goOn(`${outage} during`);
    await over;
    isOver = true;
    await comeBack();
    it.planned.goOn(speeches[1]!);
    it.ledger.goOn(`${outage} after`);

    for (const one of await Promise.all(sent)) {
      expectToldToWait(one);
      // A server that hangs may respond again before the API gave up.
      if (what === 'was killed') expect(one.unavailable?.length).toBeGreaterThan(0);
      running.push(it.recorder.follow(one.sessionId, one.turnId ?? ''));
    }
    for (const turn of running) {
      expect(await turn.done).toMatchObject({ status: 'done', required_actions: [] });
      for (const event of folded(turn.frames)) {
        if ('outcome' in event) expect(event.outcome, `of a tool in turn ${turn.turnId}`).toBe('succeeded');
      }
    }
  },
);

async function begin(plan: Plan): Promise<RecordedTurn> {
  return it.turn(await it.session(), plan);
}

function callOf({ steps }: Plan): string {
  return steps[0]?.tools?.[0]?.id ?? '';
}

function expectToldToWait({ outcome, unavailable = [] }: SentInput): void {
  expect(outcome).toBe('accepted');
  for (const { status, headers } of unavailable) {
    expect([status, Number(headers.get('retry-after'))]).toEqual([503, expect.any(Number)]);
    expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
  }
}
