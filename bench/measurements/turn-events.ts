import { setTimeout as sleep } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import proto from '@temporalio/proto';
import { sessionWorkflowId, turnWorkflowId } from '../../src/core/temporal-names.ts';
import type { Report } from '../report.ts';
import { round } from '../statistics.ts';

type Event = proto.temporal.api.history.v1.IHistoryEvent;

const { EventType } = proto.temporal.api.enums.v1;

/** The timer that ends an idle session is the only one this long: it waits for no work. */
const IDLE_TIMER_SECONDS = 86_400;

/** The session archives a turn within a second or two after its end. */
const IDLE_WITHIN_MS = 30_000;

/**
 * Counts the events of plain turns in a warm session, in the histories of the session and of the turns. Each turn is
 * alone: the next one starts when both workflows wait for nothing but a command. `turn` returns the id of one that has
 * ended.
 */
export async function measureTurnEvents(
  temporal: Client,
  { sessionId, turn, turns }: { sessionId: string; turn: () => Promise<string>; turns: number },
): Promise<Pick<Report, 'tasks_per_turn' | 'activities_per_turn' | 'timers_per_turn'>> {
  let history = await idleHistory(temporal, sessionWorkflowId(sessionId));
  const warm = history.length;
  const events: Event[] = [];
  for (let i = 0; i < turns; i++) {
    const turnId = await turn();
    events.push(...(await idleHistory(temporal, turnWorkflowId(turnId))));
    history = await idleHistory(temporal, sessionWorkflowId(sessionId));
  }
  events.push(...history.slice(warm));
  return {
    tasks_per_turn: round(count(events, EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED) / turns),
    activities_per_turn: round(count(events, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED) / turns),
    timers_per_turn: round(count(events, EventType.EVENT_TYPE_TIMER_STARTED) / turns),
  };
}

/**
 * The history of a workflow's run once it has closed or waits for nothing but a command, or its idle time: it has no open
 * task, activity, child and shorter timer.
 *
 * @throws Error if it stays busy
 */
async function idleHistory(temporal: Client, workflowId: string): Promise<Event[]> {
  const handle = temporal.workflow.getHandle(workflowId);
  for (const end = performance.now() + IDLE_WITHIN_MS; performance.now() < end; await sleep(50)) {
    const { raw, status, historyLength } = await handle.describe();
    const { events } = await handle.fetchHistory();
    const isBusy = raw.pendingWorkflowTask || raw.pendingActivities?.length || raw.pendingChildren?.length;
    // Only the history shows timers. It may be longer than when the workflow was described.
    if (events?.length !== historyLength) continue;
    if (status.name !== 'RUNNING' || (!isBusy && openTimers(events) === 0)) return events;
  }
  throw new Error(
    `${workflowId} is not idle after ${IDLE_WITHIN_MS / 1000} s: temporal workflow show -w ${workflowId}`,
  );
}

function openTimers(events: Event[]): number {
  const ended = count(events, EventType.EVENT_TYPE_TIMER_FIRED) + count(events, EventType.EVENT_TYPE_TIMER_CANCELED);
  const idle = events.filter(
    ({ timerStartedEventAttributes: timer }) => Number(timer?.startToFireTimeout?.seconds ?? 0) > IDLE_TIMER_SECONDS,
  );
  return count(events, EventType.EVENT_TYPE_TIMER_STARTED) - idle.length - ended;
}

function count(events: Event[], type: proto.temporal.api.enums.v1.EventType): number {
  return events.filter(({ eventType }) => eventType === type).length;
}
