import { MockActivityEnvironment } from '@temporalio/testing';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { warnOfSlowSteps } from './slow-steps.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

interface Step {
  id: number;
  /** Milliseconds since the test began, by the clock of the server. */
  scheduledAt: number;
  durationMs?: number;
  workflowType?: string;
  runId?: string;
  attempt?: number;
}

/** A process, and the warnings that it logs. */
function start() {
  const warnings: { steps: number; fastestMs: number; msg: string }[] = [];
  const interceptor = warnOfSlowSteps(pino({}, { write: (line: string) => void warnings.push(JSON.parse(line)) }));
  const run = async (step: Step): Promise<void> => {
    const { id, scheduledAt, durationMs = 500, workflowType = 'turn', runId = 'run_1', attempt = 1 } = step;
    const info = {
      workflowType,
      workflowExecution: { workflowId: 'turn/1', runId },
      activityId: String(id),
      // Far from the clock of this process.
      scheduledTimestampMs: 1_000_000_000 + scheduledAt,
      attempt,
    };
    const env = new MockActivityEnvironment(info, { interceptors: [interceptor] });
    await env.run(() => vi.advanceTimersByTimeAsync(durationMs));
  };
  /** Steps of a turn, each `stepMs` after the end of the one before. */
  const steps = async (count: number, stepMs: number, step: Partial<Step> = {}, from = 1): Promise<void> => {
    for (let id = from; id < from + count; id++) {
      await run({ id, scheduledAt: id * ((step.durationMs ?? 500) + stepMs), ...step });
    }
  };
  return { warnings, run, steps };
}

test('slow steps are reported once, with the settings to change', async () => {
  const { warnings, steps } = start();
  await steps(100, 50);
  expect(warnings).toEqual([
    expect.objectContaining({ steps: 20, fastestMs: 50, msg: expect.stringContaining('Temporal takes 50 ms or more') }),
  ]);
  expect(warnings[0]?.msg).toContain('history.transferProcessorMaxPollRPS to 2000');
  expect(warnings[0]?.msg).toContain('system.enableActivityEagerExecution to true');
});

test('calls that were scheduled together do not hide that the steps between them are slow', async () => {
  const { warnings, run } = start();
  for (let id = 1; id < 100; id++) await run({ id, scheduledAt: 550 * Math.floor(id / 2) });
  expect(warnings).toHaveLength(1);
});

test.each<[string, (process: ReturnType<typeof start>) => Promise<void>]>([
  ['quick steps', ({ steps }) => steps(100, 39)],
  ['nineteen slow steps', ({ steps }) => steps(20, 50, { durationMs: 2_000 })],
  ['slow steps that are the activities of a session', ({ steps }) => steps(100, 50, { workflowType: 'session' })],
  ['steps before a repeated activity', ({ steps }) => steps(100, 50, { attempt: 2 })],
  [
    'activities of which another process ran those between',
    async ({ run }) => {
      for (let id = 1; id < 200; id += 2) await run({ id, scheduledAt: id * 550 });
    },
  ],
  [
    'one pause for all turns of a process',
    async ({ steps }) => {
      for (let turn = 1; turn < 100; turn++) await steps(2, 5_000, { runId: `run_${turn}` });
    },
  ],
  [
    'waits for people, each with a quick step before it',
    async ({ run }) => {
      let at = 0;
      for (let id = 1; id < 200; id++) {
        at += id % 2 === 0 ? 60_500 : 510;
        await run({ id, scheduledAt: at });
      }
    },
  ],
])('no report of %s', async (_name, happen) => {
  const process = start();
  await happen(process);
  expect(process.warnings).toEqual([]);
});
