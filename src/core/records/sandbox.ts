import type { RecordBase } from './base.ts';

/**
 * The walls around a sandbox: `sandbox` has namespaces of its own, `confined` only filters what its processes do, and
 * `none` has no walls.
 */
export type Isolation = 'sandbox' | 'confined' | 'none';

/** An event of a feature, whose wire shape that feature declares in `src/features/events.ts`. */
export interface FeatureEvent extends RecordBase {
  kind: 'feature.event';
  /** The type of the event on the wire, of those that the feature declares. */
  type: string;
  /** Null if it concerns the whole session. */
  threadId: string | null;
  /** The fields of the event, as they are on the wire. */
  data: Record<string, unknown>;
  /** Clients get the event only if they ask for all. */
  isHidden?: true;
}

/** How a call that ran in a sandbox has ended: see `docs/code-actions.md`. */
export interface Execution {
  /** The generation of the kernel that the call leaves behind; a call that needs no kernel has none. */
  generation?: number;
  exit: 'ok' | 'error' | 'denied' | 'timeout' | 'interrupted' | 'died' | 'lost' | 'stale' | 'not_started';
  /** ISO-8601. Absent, with the duration, if the call has not started or its host was lost. */
  startedAt?: string;
  durationMs?: number;
  outputBytes: number;
  /** The tools and the commands that the code has called, and how long it has waited for people: if there are any. */
  toolCalls?: number;
  commands?: number;
  waitedMs?: number;
  /** The names that the call has defined or changed, at most 100. */
  defined: string[];
  error?: { name: string; message: string };
}

/** Files that a call has made in the workspace of its session: its displays, and its result if that is too long. */
export interface SavedFiles {
  sandboxId: string;
  files: SavedFile[];
}

export interface SavedFile {
  name: string;
  mediaType: string;
  bytes: number;
  /** Relative to the workspace. */
  path: string;
}

/** The execution of code without output: the code has not run, or its output is lost. */
export function withoutOutput(exit: Execution['exit']): Execution {
  return { exit, outputBytes: 0, defined: [] };
}
