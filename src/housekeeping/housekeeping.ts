import type { BlobStore } from '../blobs/blob-store.ts';
import type { Config } from '../config.ts';
import type { TurnIndex } from '../engine/turn-index.ts';
import type { TurnLogReader } from '../engine/turn-log-reader.ts';
import type { SweepSources } from '../features/feature.ts';
import type { RunStates } from '../features/run-support/run-summaries.ts';

/** The dependencies of the parts of a sweep. */
export interface Housekeeping extends SweepSources {
  config: Pick<Config, 'turnSeconds'>;
  blobs: BlobStore;
  logs: TurnLogReader;
  turnIndex: TurnIndex;
  runStates: RunStates;
  /** Returns whether anything was archived. @throws TurnNotFound */
  archiveTurn: (turnId: string, signal: AbortSignal) => Promise<boolean>;
}

export interface Sweep {
  /** When it began. */
  now: Date;
  stop: AbortSignal;
}
