import type { Logger } from 'pino';
import type { Client } from '@temporalio/client';
import type { KernelCatalog } from '../../catalog/catalog.ts';
import type { ScheduleRunStatus } from './tables.ts';
import type { Schedule, Schedules } from './schedule-rows.ts';
import type { ScheduleRuns } from './schedule-run-rows.ts';
import { RUN_WITHIN_MS, type ScheduledTime } from '../../core/scheduled-run.ts';
import { sha256 } from '../../lib/hash.ts';
import { syncSchedule } from './schedules.ts';

/** The sessions that a face creates for schedules. */
export interface ScheduledSessions {
  /** The id of the session of a run of a schedule. */
  idOf(run: { id: string; scheduledFor: string }): string;
  /** Creates the session and its first turn, unless they exist. May be repeated after an error. */
  create(schedule: Schedule, sessionId: string): Promise<CreatedOrNot>;
  /** Whether an existing session neither works nor waits. */
  hasEnded(sessionId: string): Promise<boolean>;
}

export type CreatedOrNot =
  | { status: 'created' }
  /** No session was created, and none will be. */
  | { status: Exclude<ScheduleRunStatus, 'created' | 'skipped_overlap'>; error: string };

interface RunServices {
  catalog: Pick<KernelCatalog, 'sessions'> & { schedules: Schedules; scheduleRuns: ScheduleRuns };
  scheduledSessions: ScheduledSessions;
  client: Client;
  taskQueue: string;
  log: Logger;
}

/** A claim expires after this time, even if its run left neither a session nor a row. */
const CLAIM_MS = RUN_WITHIN_MS + 10 * 60_000;

/**
 * Creates the session of a due schedule, and records the outcome. A repetition completes an earlier attempt: the ids of
 * the run and of its session derive from the workflow that the schedule has started.
 */
export async function runSchedule(services: RunServices, due: ScheduledTime): Promise<void> {
  const { catalog, scheduledSessions } = services;
  const run = { id: runIdOf(due.workflowId), scheduledFor: due.scheduledFor };
  if (await catalog.scheduleRuns.get(run.id)) return;
  const schedule = await catalog.schedules.get(due.scheduleId);
  if (!schedule) {
    // The schedule was deleted, or its row is missing in a restored, older state of the catalog.
    await syncSchedule(services, due.scheduleId);
    return;
  }
  const sessionId = scheduledSessions.idOf(run);
  const outcome = await outcomeOf(services, { due, schedule, sessionId });
  if (outcome) await record(services, { due, runId: run.id, sessionId, outcome });
}

/** The id of the schedule's run in a workflow: a UUID of version 8 (RFC 9562, section 5.8). */
export function runIdOf(workflowId: string): string {
  const hex = sha256(workflowId);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

type Outcome = CreatedOrNot | { status: 'skipped_overlap' };

interface Run {
  due: ScheduledTime;
  schedule: Schedule;
  sessionId: string;
}

/** Undefined if no run is recorded: the schedule is paused or complete, and Temporal did not have that change yet. */
async function outcomeOf(services: RunServices, run: Run): Promise<Outcome | undefined> {
  const { catalog, scheduledSessions } = services;
  const { due, schedule, sessionId } = run;
  const isClaimed = schedule.last_session_id === sessionId;
  if (!isClaimed && !due.isManual && (schedule.paused || isComplete(schedule))) return undefined;
  const isLate = Date.now() > Date.parse(due.scheduledFor) + RUN_WITHIN_MS;
  if (isLate && !(isClaimed && (await catalog.sessions.get(sessionId)))) {
    return {
      status: 'error',
      error: `The server could not create the session within ${RUN_WITHIN_MS / 60_000} minutes.`,
    };
  }
  if (!isClaimed && !(await claim(services, run))) return { status: 'skipped_overlap' };
  return scheduledSessions.create(schedule, sessionId);
}

/** Whether a schedule has created all of its sessions. */
export function isComplete({
  repeats,
  sessions_created: created,
}: Pick<Schedule, 'repeats' | 'sessions_created'>): boolean {
  return repeats !== null && created >= repeats;
}

/** Makes the session the open one of its schedule. False if there is another one, perhaps of a concurrent run. */
async function claim(services: RunServices, { schedule, sessionId }: Run): Promise<boolean> {
  const { id, last_session_id: last } = schedule;
  if (last !== null && (await isOpen(services, last, schedule.claimed_at))) return false;
  return services.catalog.schedules.claim(id, { sessionId, instead: last, now: new Date().toISOString() });
}

async function isOpen(
  { catalog, scheduledSessions }: RunServices,
  sessionId: string,
  claimedAt: string | null,
): Promise<boolean> {
  if (await catalog.sessions.get(sessionId)) return !(await scheduledSessions.hasEnded(sessionId));
  if (await catalog.sessions.deletedAt(sessionId)) return false;
  // The run that has claimed the session is still in progress, unless its workflow was terminated.
  return Date.now() < Date.parse(claimedAt ?? '') + CLAIM_MS;
}

async function record(
  services: RunServices,
  { due, runId, sessionId, outcome }: Omit<Run, 'schedule'> & { runId: string; outcome: Outcome },
): Promise<void> {
  const { catalog, log } = services;
  const { scheduleId, scheduledFor, isManual } = due;
  const isCreated = outcome.status === 'created';
  const run = {
    id: runId,
    schedule_id: scheduleId,
    status: outcome.status,
    scheduled_for: scheduledFor,
    session_id: isCreated ? sessionId : null,
    error: 'error' in outcome ? outcome.error : null,
    triggered_manually: isManual,
    created_at: new Date().toISOString(),
  };
  const note = (sessions: number) => `All sessions were created: ${sessions}.`;
  if (!(await catalog.scheduleRuns.record(run, { sessionId, note }))) return;
  // Further runs read from the row that the schedule is paused, even if this fails.
  await syncSchedule(services, scheduleId).catch((error: unknown) =>
    log.warn({ scheduleId, err: error }, 'a schedule was not paused in Temporal; housekeeping retries it'),
  );
}
