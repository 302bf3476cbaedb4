import type { Generated } from 'kysely';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /** Times at which sessions of the Agents API v2 are created. */
    schedules: {
      id: string;
      /** Encrypted, like the next two. */
      name: string;
      description: string | null;
      /** JSON: what each session is created with; its agent is resolved then. */
      request: string;
      /** Five fields. */
      cron: string;
      /** As IANA names it. */
      timezone: string;
      paused: Generated<number>;
      /** Encrypted. */
      pause_note: Generated<string | null>;
      /** How many sessions it creates before it is paused; null: it is never paused by itself. */
      repeats: number | null;
      /** The sessions that count towards `repeats`: those that no caller has requested. */
      sessions_created: Generated<number>;
      last_run_at: Generated<string | null>;
      /** The newest session that a run has claimed; the next run starts none before it has ended. */
      last_session_id: Generated<string | null>;
      claimed_at: Generated<string | null>;
      subject_id: string;
      subject_type: string;
      subject_slug: string;
      /** JSON: the roles of the owner when it wrote `request`. */
      roles: string;
      /** The key of the catalog with which the owner wrote `request`; null: another credential. */
      key_id: string | null;
      created_at: string;
      updated_at: string;
      /** A deleted schedule no longer exists for any caller; the row remains until Temporal has deleted it. */
      deleted_at: Generated<string | null>;
      /** Counts its changes. */
      revision: Generated<number>;
      /** The revision that Temporal has, as far as is known. */
      synced_revision: Generated<number>;
      /** When Temporal was last asked whether it has the schedule. */
      checked_at: string;
    };
    /** What became of the times at which schedules were due. */
    schedule_runs: {
      id: string;
      schedule_id: string;
      status: ScheduleRunStatus;
      scheduled_for: string;
      session_id: string | null;
      /** Encrypted. */
      error: string | null;
      triggered_manually: number;
      created_at: string;
    };
  }
}

export const SCHEDULE_RUN_STATUSES = ['created', 'skipped_overlap', 'skipped_quota', 'error'] as const;

export type ScheduleRunStatus = (typeof SCHEDULE_RUN_STATUSES)[number];
