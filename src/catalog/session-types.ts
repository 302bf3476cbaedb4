import type { SessionRow } from './schema.ts';

/** The sessions that are shown as such: the others are those of runs. */
export const SHOWN_SESSIONS = ['session', 'session/draft'] as const;

/** Whether a session is that of a run, or of an agent to which a run has delegated a call. */
export function isOfRun({ type }: Pick<SessionRow, 'type'>): boolean {
  return type === 'run' || type === 'run/delegate';
}
