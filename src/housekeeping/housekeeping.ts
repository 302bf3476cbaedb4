import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { TurnIndex } from '../engine/turn-index.ts';
import type { TurnLogReader } from '../engine/turn-log-reader.ts';
import type { Catalog } from '../features/catalog.ts';
import type { RunStates } from '../features/run-support/run-summaries.ts';

/** The dependencies of the parts of a sweep. */
export interface Housekeeping {
  client: Client;
  taskQueue: string;
  catalog: Catalog;
  blobs: BlobStore;
  logs: TurnLogReader;
  turnIndex: TurnIndex;
  runStates: RunStates;
  /** Returns whether anything was archived. @throws TurnNotFound */
  archiveTurn: (turnId: string, signal: AbortSignal) => Promise<boolean>;
  log: Logger;
}

export interface Sweep {
  /** When it began. */
  now: Date;
  stop: AbortSignal;
}
