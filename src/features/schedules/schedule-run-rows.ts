import type { Selectable, Transaction } from 'kysely';
import { aadFor } from './schedule-rows.ts';
import type { Tables } from '../../catalog/schema.ts';
import { changeRows, countRows, Store } from '../../catalog/store.ts';

/** A run of a schedule with its decrypted parts. */
export interface ScheduleRun extends Omit<Selectable<Tables['schedule_runs']>, 'triggered_manually'> {
  triggered_manually: boolean;
}

interface RunPage {
  order: 'asc' | 'desc';
  offset: number;
  limit: number;
}

/** Older runs of a schedule are deleted. */
const MAX_RUNS = 1_000;

/** The runs of schedules: the outcome of each time at which a schedule was due. */
export class ScheduleRuns extends Store {
  async get(id: string): Promise<ScheduleRun | undefined> {
    const row = await this.db.selectFrom('schedule_runs').selectAll().where('id', '=', id).executeTakeFirst();
    return row && this.#open(row);
  }

  async list(scheduleId: string, { order, offset, limit }: RunPage): Promise<{ items: ScheduleRun[]; total: number }> {
    const all = this.db.selectFrom('schedule_runs').where('schedule_id', '=', scheduleId);
    const page = all.selectAll().orderBy('scheduled_for', order).orderBy('id', order).offset(offset).limit(limit);
    const total = await countRows(all);
    return { items: (await page.execute()).map((row) => this.#open(row)), total };
  }

  /**
   * Records a run, and counts its session. Pauses the schedule with this note after its last session, and returns
   * whether it did. Has no effect if the run was already recorded, or the schedule was deleted.
   * @param sessionId the session that the run has claimed, whether it was created or not
   */
  async record(
    run: ScheduleRun,
    { sessionId, note }: { sessionId: string; note: (sessions: number) => string },
  ): Promise<boolean> {
    const { id, schedule_id: scheduleId, error, created_at: now } = run;
    const counts = run.status === 'created' && !run.triggered_manually;
    return this.db.transaction().execute(async (db) => {
      // Updated first, which locks the row.
      const schedule = await db
        .updateTable('schedules')
        .set({ last_run_at: now })
        .where('id', '=', scheduleId)
        .where('deleted_at', 'is', null)
        .returning(['repeats', 'sessions_created', 'last_session_id'])
        .executeTakeFirst();
      if (!schedule) return false;
      const row = {
        ...run,
        triggered_manually: Number(run.triggered_manually),
        error: error && this.cipher.sealText(error, aadFor(scheduleId, `run/${id}`)),
      };
      const recorded = db.insertInto('schedule_runs').values(row);
      if (!(await changeRows(recorded.onConflict((conflict) => conflict.column('id').doNothing())))) return false;
      await forgetOldRuns(db, scheduleId);
      const sessions = schedule.sessions_created + Number(counts);
      const isLast = counts && schedule.repeats !== null && sessions >= schedule.repeats;
      const pauseNote = isLast ? this.cipher.sealText(note(sessions), aadFor(scheduleId, 'pause_note')) : null;
      await db
        .updateTable('schedules')
        .set((eb) => ({
          sessions_created: sessions,
          // A claim that led to no session is released.
          ...(run.status !== 'created' && schedule.last_session_id === sessionId && { last_session_id: null }),
          ...(isLast && { paused: 1, pause_note: pauseNote, revision: eb('revision', '+', 1), updated_at: now }),
        }))
        .where('id', '=', scheduleId)
        .execute();
      return isLast;
    });
  }

  #open(row: Selectable<Tables['schedule_runs']>): ScheduleRun {
    const { id, schedule_id: scheduleId, error, triggered_manually: isManual } = row;
    return {
      ...row,
      error: error && this.cipher.openText(error, aadFor(scheduleId, `run/${id}`)),
      triggered_manually: isManual === 1,
    };
  }
}

async function forgetOldRuns(db: Transaction<Tables>, scheduleId: string): Promise<void> {
  const newestOld = await db
    .selectFrom('schedule_runs')
    .select(['scheduled_for', 'id'])
    .where('schedule_id', '=', scheduleId)
    .orderBy('scheduled_for', 'desc')
    .orderBy('id', 'desc')
    .offset(MAX_RUNS)
    .limit(1)
    .executeTakeFirst();
  if (!newestOld) return;
  await db
    .deleteFrom('schedule_runs')
    .where('schedule_id', '=', scheduleId)
    .where((eb) => eb(eb.refTuple('scheduled_for', 'id'), '<=', eb.tuple(newestOld.scheduled_for, newestOld.id)))
    .execute();
}
