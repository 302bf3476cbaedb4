import { LRUCache } from 'lru-cache';
import type { TurnAccepted } from '../core/session.ts';
import type { LogEntry, UnsequencedRecord } from '../core/records/log.ts';
import type { QueuePosition } from '../core/turn-queue.ts';
import { memoized } from '../lib/memoized.ts';

/** A turn in its session. */
export interface TurnOfSession extends TurnAccepted {
  sessionId: string;
  /** It waits in the queue, or has ended there. */
  queued?: QueuePosition;
}

/** A turn that has ended, with its whole log, which no longer changes. */
export interface EndedTurn extends TurnOfSession {
  /** As they are stored: large texts are references. */
  entries: LogEntry[];
  /** The same with their texts, once a conversation has needed them: an entry without references is the stored one. */
  restored?: LogEntry[];
}

/** The limit of the cache, in characters of JSON. */
const MAX_CACHED_CHARACTERS = 64 * 1024 * 1024;

/**
 * The ended turns that this process has read, by their ids. They are often read again soon: by the next turn of their
 * session, by the archive, and by readers of a list.
 */
type EndedTurns = LRUCache<string, EndedTurn>;

export function endedTurns(): EndedTurns {
  return new LRUCache({
    maxSize: MAX_CACHED_CHARACTERS,
    sizeCalculation: ({ entries, restored = [] }) => {
      const own = restored.filter((entry, i) => entry !== entries[i]);
      return recordCharacters(recordsOf([...entries, ...own]));
    },
  });
}

/** The approximate size of records; at least 1, as caches require. */
export function recordCharacters(records: UnsequencedRecord[]): number {
  return records.reduce((sum, record) => sum + charactersIn(record), 1);
}

/** Memoized, since caches measure a turn again when something is added to it. */
const charactersIn = memoized((record: UnsequencedRecord) => JSON.stringify(record).length);

export function recordsOf(entries: LogEntry[]): UnsequencedRecord[] {
  return entries.map(({ record }) => record);
}
