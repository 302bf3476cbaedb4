import type { Insertable, Selectable, Updateable } from 'kysely';
import type { Role } from '../../core/subject.ts';
import type { Tables } from '../../catalog/schema.ts';
import { changeRows, countRows, Store } from '../../catalog/store.ts';

type ScheduleRow = Selectable<Tables['schedules']>;

/** A schedule with its decrypted parts. */
export interface Schedule extends Omit<ScheduleRow, 'roles' | 'paused'> {
  roles: Role[];
  paused: boolean;
}

export interface NewSchedule extends Omit<
  Insertable<Tables['schedules']>,
  'roles' | 'paused' | 'pause_note' | 'sessions_created' | 'revision'
> {
  roles: readonly Role[];
}

/** The fields of a schedule that a caller may change. */
export interface ScheduleChange extends Pick<
  Updateable<Tables['schedules']>,
  'name' | 'description' | 'cron' | 'timezone' | 'request' | 'key_id' | 'pause_note' | 'repeats'
> {
  roles?: readonly Role[];
  paused?: boolean;
  updated_at: string;
}

interface ScheduleLimits {
  perSubject: number;
  total: number;
}

interface SchedulePage {
  /** Undefined: the schedules of all subjects. */
  subjectId: string | undefined;
  order: 'asc' | 'desc';
  offset: number;
  limit: number;
}

/** The columns that are encrypted. */
const SEALED = ['name', 'description', 'request', 'pause_note'] as const;

type Sealed = { [Part in (typeof SEALED)[number]]?: string | null | undefined };

/**
 * The schedules of the Agents API v2. The row of a schedule is authoritative; Temporal executes it. `revision` counts
 * the changes of the row; `synced_revision` is the revision that Temporal has.
 */
export class Schedules extends Store {
  /** Stores a schedule. False if its subject, or the server, already has the maximum number. */
  async insert(schedule: NewSchedule, limits: ScheduleLimits): Promise<boolean> {
    const row = { ...schedule, ...this.#sealed(schedule.id, schedule), roles: JSON.stringify(schedule.roles) };
    return this.db.transaction().execute(async (db) => {
      await db.insertInto('schedules').values(row).execute();
      const { total, own } = await db
        .selectFrom('schedules')
        .select((eb) => [
          eb.fn.countAll<number>().as('total'),
          eb.fn.countAll<number>().filterWhere('subject_id', '=', schedule.subject_id).as('own'),
        ])
        .where('deleted_at', 'is', null)
        .executeTakeFirstOrThrow();
      if (total <= limits.total && own <= limits.perSubject) return true;
      await db.deleteFrom('schedules').where('id', '=', schedule.id).execute();
      return false;
    });
  }

  async get(id: string): Promise<Schedule | undefined> {
    const schedule = await this.find(id);
    return schedule?.deleted_at === null ? schedule : undefined;
  }

  /** Also finds a deleted schedule. */
  async find(id: string): Promise<Schedule | undefined> {
    const row = await this.db.selectFrom('schedules').selectAll().where('id', '=', id).executeTakeFirst();
    return row && this.#open(row);
  }

  async list({ subjectId, order, offset, limit }: SchedulePage): Promise<{ items: Schedule[]; total: number }> {
    const all = this.db
      .selectFrom('schedules')
      .where('deleted_at', 'is', null)
      .$if(subjectId !== undefined, (query) => query.where('subject_id', '=', subjectId ?? ''));
    const page = all.selectAll().orderBy('created_at', order).orderBy('id', order).offset(offset).limit(limit);
    const total = await countRows(all);
    return { items: (await page.execute()).map((row) => this.#open(row)), total };
  }

  /** Changes a schedule. False if there is none with this id. */
  async change(id: string, change: ScheduleChange): Promise<boolean> {
    const { roles, paused, ...rest } = change;
    const changed = this.#existing(id).set((eb) => ({
      ...rest,
      ...this.#sealed(id, rest),
      ...(roles && { roles: JSON.stringify(roles) }),
      ...(paused !== undefined && { paused: Number(paused) }),
      revision: eb('revision', '+', 1),
    }));
    return changeRows(changed);
  }

  /** Marks a schedule as deleted; its row is kept until Temporal has deleted the schedule. False if there is none. */
  async delete(id: string, now: string): Promise<boolean> {
    return changeRows(this.#existing(id).set({ deleted_at: now }));
  }

  /** Removes the row of a deleted schedule, with its runs. */
  async remove(id: string): Promise<void> {
    await this.db.deleteFrom('schedules').where('id', '=', id).where('deleted_at', 'is not', null).execute();
  }

  /** Records that Temporal has this revision of a schedule. False if it is no longer the current revision. */
  async synced(id: string, revision: number, now: string): Promise<boolean> {
    const synced = this.#existing(id).set({ synced_revision: revision, checked_at: now });
    return changeRows(synced.where('revision', '=', revision));
  }

  /** Schedules whose newest revision Temporal may not have, or that were last checked before `checkedBefore`. */
  async toSync(checkedBefore: string, limit: number): Promise<string[]> {
    const rows = await this.db
      .selectFrom('schedules')
      .select('id')
      .where((eb) =>
        eb.or([
          eb('synced_revision', '!=', eb.ref('revision')),
          eb('deleted_at', 'is not', null),
          eb('checked_at', '<', checkedBefore),
        ]),
      )
      // Schedules that cannot be synced must not block the others.
      .orderBy('checked_at')
      .orderBy('id')
      .limit(limit)
      .execute();
    return rows.map(({ id }) => id);
  }

  /** Records a failed check of a schedule. */
  async postpone(id: string, now: string): Promise<void> {
    await this.db.updateTable('schedules').set({ checked_at: now }).where('id', '=', id).execute();
  }

  /** Makes a session the newest one of a schedule, in place of `instead`. False if `instead` is not the newest one. */
  async claim(
    id: string,
    { sessionId, instead, now }: { sessionId: string; instead: string | null; now: string },
  ): Promise<boolean> {
    const claimed = this.#existing(id).set({ last_session_id: sessionId, claimed_at: now });
    return changeRows(claimed.where('last_session_id', instead === null ? 'is' : '=', instead));
  }

  #existing(id: string) {
    return this.db.updateTable('schedules').where('id', '=', id).where('deleted_at', 'is', null);
  }

  /** Encrypts the parts that are present. */
  #sealed<T extends Sealed>(id: string, given: T): Pick<T, keyof Sealed & keyof T> {
    const parts = SEALED.flatMap((part) => {
      const text = given[part];
      return text === undefined ? [] : [[part, text && this.cipher.sealText(text, aadFor(id, part))]];
    });
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- texts stay texts
    return Object.fromEntries(parts) as Pick<T, keyof Sealed & keyof T>;
  }

  #open(row: ScheduleRow): Schedule {
    const open = (part: (typeof SEALED)[number], text: string): string =>
      this.cipher.openText(text, aadFor(row.id, part));
    return {
      ...row,
      name: open('name', row.name),
      description: row.description && open('description', row.description),
      request: open('request', row.request),
      pause_note: row.pause_note && open('pause_note', row.pause_note),
      paused: row.paused === 1,
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `insert` and `change`
      roles: JSON.parse(row.roles) as Role[],
    };
  }
}

export function aadFor(scheduleId: string, part: string): string {
  return `schedule/${scheduleId}/${part}`;
}
