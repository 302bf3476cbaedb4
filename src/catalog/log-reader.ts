import type { Transaction, Updateable } from 'kysely';
import type { TurnStart } from '../core/history.ts';
import type { LogEntry } from '../core/records/log.ts';
import type { TurnDone } from '../core/records/turn.ts';
import type { SessionState } from '../core/session-state.ts';
import type { Change, OutboxEvent } from './outbox.ts';
import type { SessionRow, Tables, TurnRow, TurnsTable } from './schema.ts';
import type { AcceptedTurn } from './turns.ts';
import type { DerivedRows } from './underived.ts';

type Db = Transaction<Tables>;
type Emit = (...events: OutboxEvent[]) => void;

/** What features derive from the start of a turn. They declare their fields in this and the next two interfaces. */
export interface StartReading {}

/** What features derive from entries of a log. */
export interface EntriesReading {
  /** The state in which the turn leaves its session, if the entries end the turn and `stateAfter` does not apply. */
  leaves?: SessionState | undefined;
}

/** What features derive from a session that another version has written. */
export interface SessionReading {}

/** Derives what `LogReader`s store, before the transaction in which they store it. */
export interface LogReading {
  ofStart: (start: Omit<TurnStart, 'resumes' | 'queued'>) => Promise<StartReading>;
  /** `last`: the last of the entries; `isLast`: none are added after these for now. */
  ofEntries: (added: {
    turn: TurnRow;
    entries: LogEntry[];
    last: LogEntry;
    isLast: boolean;
  }) => Promise<EntriesReading>;
}

/** The end of a turn, in its session. */
export interface TurnEnding extends Pick<TurnDone, 'workedMs'> {
  turnId: string;
  sessionId: string;
  session: Pick<SessionRow, 'type' | 'subject_id'>;
  at: string;
  /** No other turn has followed. */
  isLast: boolean;
}

/**
 * Derives rows of a feature from logs, and from changes of turns and sessions, in the transaction that stores these: so
 * each is derived exactly once. The transaction has locked the row of the session, unless a request is withdrawn. A
 * reader that has nothing to do sends no statement.
 */
export interface LogReader {
  /** @param secrets what the client of a run gives its servers */
  turnRequested?: (db: Db, turn: Pick<TurnRow, 'id' | 'session_id'>, secrets?: string) => Promise<void>;
  turnAccepted?: (db: Db, turn: AcceptedTurn, emit: Emit) => Promise<void>;
  /** @param turn as it was before the entries were added */
  entriesAdded?: (db: Db, turn: TurnRow, read: EntriesReading, emit: Emit) => Promise<void>;
  turnEnded?: (db: Db, turn: TurnEnding, read: EntriesReading) => Promise<void>;
  /** A turn of the session was removed, or a request for one withdrawn. */
  turnRemoved?: (db: Db, sessionId: string) => Promise<void>;
  sessionEnded?: (db: Db, sessionId: string, end: { isDeleted: boolean }, emit: Emit) => Promise<void>;
  /** The rows of a deleted session are removed; called repeatedly. `isLast`: its own row is removed, too. */
  sessionRemoved?: (db: Db, sessionId: string, removal: { isLast: boolean }) => Promise<void>;
  /** A session that another version has written is brought up to date. */
  sessionDerived?: (db: Db, sessionId: string, read: DerivedRows) => Promise<void>;
}

/** The tables that have a column. */
type TableWith<Column extends string> = {
  [Name in keyof Tables]: Column extends keyof Tables[Name] ? Name : never;
}[keyof Tables];

type OwnColumn = 'id' | 'session_id' | 'previous_turn_id' | 'sequence' | 'created_at' | 'state' | 'state_at';

/** The features, as the catalog uses them. */
export interface CatalogFeatures {
  /** The readers are called in this order. */
  readers: readonly LogReader[];
  /** The tables whose rows are deleted with their session, without those that need more than a deletion. */
  tablesOfSessions: readonly TableWith<'session_id'>[];
  tablesOfTurns: readonly TableWith<'turn_id'>[];
  /** The columns of features in the row of an accepted turn. */
  columnsOf: (turn: AcceptedTurn) => Updateable<Omit<TurnsTable, OwnColumn>>;
  /** Writes the events of a transaction at its end, for their receivers. */
  writeEvents: (db: Db, events: OutboxEvent[]) => Promise<Change[]>;
}
