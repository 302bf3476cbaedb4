import proto from '@temporalio/proto';
import { fileURLToPath } from 'node:url';
import { bundleWorkflowCode, DefaultLogger, type InjectedSinks } from '@temporalio/worker';
import { pino } from 'pino';
import { beforeAll, expect, test } from 'vitest';
import { Turn } from '../../src/core/turn.ts';
import type { LogEntry } from '../../src/core/records/log.ts';
import { turnIdOf } from '../../src/core/temporal-names.ts';
import type { TurnHistory } from '../../src/temporal/history.ts';
import packageJson from '../../package.json' with { type: 'json' };
import { readerOf, readHistories, recordedScenarios } from '../support/histories.ts';
import { Replayer } from '../support/replay.ts';
import { installRuntime } from '../support/temporal-runtime.ts';
import type { WatchSinks } from '../support/watched-workflows.ts';

const scenarios = await recordedScenarios();

/** The log and the activities of a workflow, by its run. */
interface Told {
  entries: LogEntry[];
  scheduled: [activityType: string, input: unknown][];
}

const told = new Map<string, Told>();

function toldBy(runId: string): Told {
  const one = told.get(runId) ?? { entries: [], scheduled: [] };
  told.set(runId, one);
  return one;
}

/** Replays on the current workflows, which also report their logs. */
let replayer: Replayer;
beforeAll(async () => {
  // The runtime would log each history.
  await installRuntime(pino({ level: 'silent' }));
  const workflowBundle = await bundleWorkflowCode({
    workflowsPath: fileURLToPath(new URL('../../workflows/index.ts', import.meta.url)),
    workflowInterceptorModules: [fileURLToPath(new URL('../support/watched-workflows.ts', import.meta.url))],
    logger: new DefaultLogger('ERROR'),
  });
  const sinks: InjectedSinks<WatchSinks> = {
    watch: {
      entries: { fn: ({ runId }, entries) => void toldBy(runId).entries.push(...entries), callDuringReplay: true },
      scheduled: { fn: ({ runId }, ...one) => void toldBy(runId).scheduled.push(one), callDuringReplay: true },
    },
  };
  replayer = new Replayer({ workflowBundle, sinks });
});

test('histories of this release exist', () => {
  expect(scenarios.some((scenario) => scenario.startsWith(`${packageJson.version}/`))).toBe(true);
});

test.each(scenarios)(
  '%s: its workflows do the same, and know what the readers of their logs know',
  async (scenario) => {
    const histories = await readHistories(scenario);
    expect(histories.length).toBeGreaterThan(0);
    const reader = readerOf(histories);
    for (const { workflowId, runId, history } of histories) {
      const { runId: replayedRunId, error } = await replayer.replay(workflowId, history);
      expect(error, `${workflowId} does not replay: see "Changing workflow code" in CONTRIBUTING.md`).toBeUndefined();
      const { entries, scheduled } = toldBy(replayedRunId);
      // In a replay, a run that results from a reset has the id of the run before.
      told.delete(replayedRunId);
      const turnId = turnIdOf(workflowId);
      if (turnId === undefined || resultsFromReset(history)) continue;
      expect(scheduled, `${workflowId} ${runId}`).toEqual(scheduledIn(history));
      const log = await logOf(reader, turnId, runId);
      expect(entries.map(withoutFacts), `${workflowId} ${runId}`).toEqual(log.map(withoutFacts));
    }
  },
);

/** The activities that a history has scheduled. */
function scheduledIn(history: object): Told['scheduled'] {
  return eventsIn(history).flatMap(({ activityTaskScheduledEventAttributes: scheduled }): Told['scheduled'] => {
    const [payload] = scheduled?.input?.payloads ?? [];
    if (!scheduled?.activityType?.name || !payload?.data) return [];
    return [[scheduled.activityType.name, JSON.parse(Buffer.from(payload.data).toString())]];
  });
}

function eventsIn(history: object): proto.temporal.api.history.v1.IHistoryEvent[] {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- decoded by `readHistories`
  return (history as proto.temporal.api.history.v1.IHistory).events ?? [];
}

/** The log of a turn that was reset is that of the run before: no reader gets what this one does. */
function resultsFromReset(history: object): boolean {
  const { EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: STARTED } = proto.temporal.api.enums.v1.EventType;
  return eventsIn(history).some(
    ({ eventType, workflowTaskFailedEventAttributes: failed, workflowExecutionStartedEventAttributes: started }) =>
      failed?.newRunId || (eventType === STARTED && /"resetRunId":/.test(startIn(started?.input))),
  );
}

function startIn(input: proto.temporal.api.common.v1.IPayloads | null | undefined): string {
  return Buffer.from(input?.payloads?.[0]?.data ?? []).toString();
}

/** The log that readers of a run get while it runs: not how it was closed. */
async function logOf(reader: TurnHistory, turnId: string, runId: string): Promise<LogEntry[]> {
  const projection = new Turn();
  const entries: LogEntry[] = [];
  for await (const { events } of reader.read(turnId, { runId })) {
    for (const event of events) if (event.type !== 'closed') entries.push(...projection.feed(event));
  }
  return entries;
}

/** Only the history shows when an activity without a result has ended, and why, and the attempts of all of them. */
function withoutFacts({ ordinal, record: read }: LogEntry): unknown {
  const { activities: _, ...record } = read;
  const { kind } = record;
  if (kind === 'tool.response') {
    const isCertain = record.outcome === 'succeeded' || record.outcome === 'denied' || record.outcome === 'expired';
    const facts = { at: '', ...(!isCertain && { outcome: '', content: '' }) };
    return { ordinal, record: { ...record, ...facts } };
  }
  if (kind === 'thread.done') return { ordinal, record: { ...record, at: '', end: record.end.status } };
  return { ordinal, record };
}
