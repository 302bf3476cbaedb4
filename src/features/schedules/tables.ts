import type { Generated } from 'kysely';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /** The schedules by which sessions of the Agents API v2 are created. */
    schedules: {
      id: string;
      /** Encrypted, like the next two. */
      name: string;
      description: string | null;
      /** JSON: the request that creates each session; its agent is resolved at that time. */
      request: string;
      /** Five fields. */
      cron: string;
      /** An IANA name. */
      timezone: string;
      paused: Generated<number>;
      /** Encrypted. */
      pause_note: Generated<string | null>;
      /** The number of sessions after which it is paused; null: it is never paused automatically. */
      repeats: number | null;
      /** The sessions that count towards `repeats`: without those that callers have triggered. */
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
      /** The newest revision that was synced with Temporal. */
      synced_revision: Generated<number>;
      /** When Temporal was last asked whether it has the schedule. */
      checked_at: string;
    };
    /** The outcome of each time at which a schedule was due. */
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
