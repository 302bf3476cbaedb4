import { lostRecord, type DamagedRecord } from '../core/lost-record.ts';
import { DecryptionFailed } from '../encryption/cipher.ts';
import { OnceLog } from '../lib/once-log.ts';
import type { LogEntry, LogRecord } from '../core/records/log.ts';
import { referToBlobs, ROW_BATCH_SIZE } from './blob-references.ts';
import type { EntriesReading } from './log-reader.ts';
import type { ArchiveRow } from './schema.ts';
import { stateAfter, type TurnState } from '../core/session-state.ts';
import { turnAfter, turnChanged } from './session-states.ts';
import { addSessionTotals, subjectOf, touchSession } from './sessions.ts';
import { addStoredBytes } from './stored-bytes.ts';
import { changeRows, Store } from './store.ts';

/** What was derived from entries of a log. */
interface ArchivedState extends EntriesReading {
  /** The state of the turn after them; `ended` if the log ends with them. */
  state: TurnState;
}

/** The largest value of the column on PostgreSQL; a client's cursor may exceed it. */
const MAX_ORDINAL = 2 ** 31 - 1;

/**
 * The logs of ended turns, and the ended segments of long-running ones. Records have the form they have in histories.
 */
export class Archive extends Store {
  readonly #losses = new OnceLog(this.context.log);

  /**
   * Adds entries of a turn that is in the index, and changes the rows that derive from them. Returns the entries that this
   * call added, without those that another process had archived before. Undefined if the turn's session was deleted;
   * nothing is added then.
   */
  async add(turnId: string, entries: LogEntry[], { state, ...read }: ArchivedState): Promise<LogEntry[] | undefined> {
    const last = entries.at(-1);
    if (!last) return [];
    return this.context.outbox.transaction(async (db, emit) => {
      if (!(await touchSession(db, { turnId, at: last.record.at }))) return undefined;
      // The session's row is now locked, so no other process adds entries. The archived ordinals have no gaps.
      const turn = await db.selectFrom('turns').selectAll().where('id', '=', turnId).executeTakeFirst();
      if (!turn) return undefined;
      const { archived_through: before } = turn;
      const added = entries.filter(({ ordinal }) => ordinal > before);
      if (added.length === 0) return [];
      const done = last.record.kind === 'turn.done' ? last.record : undefined;
      const leaves = done && (read.leaves ?? stateAfter(done));
      const change = {
        archived_through: last.ordinal,
        state,
        ...(state !== turn.state && { state_at: last.record.at }),
        ...(state === 'ended' && { archived: 1 }),
        ...(leaves && { leaves }),
      };
      if (!(await changeRows(db.updateTable('turns').set(change).where('id', '=', turnId)))) return undefined;
      let bytes = 0;
      for (let from = 0; from < added.length; from += ROW_BATCH_SIZE) {
        const batch = added.slice(from, from + ROW_BATCH_SIZE);
        const records = batch.map(({ record }) => JSON.stringify(record));
        const rows = batch.map(({ ordinal }, i) => ({
          turn_id: turnId,
          ordinal,
          record: this.cipher.sealText(records[i] ?? '', aadForRecord(turnId, ordinal)),
        }));
        await db.insertInto('archive').values(rows).execute();
        bytes += rows.reduce((sum, { record }) => sum + Buffer.byteLength(record), 0);
        await referToBlobs(db, turn.session_id, records);
      }
      const { session_id: sessionId } = turn;
      for (const reader of this.context.features.readers) await reader.entriesAdded?.(db, turn, read, emit);
      const next = state === turn.state ? undefined : await turnAfter(db, turn);
      if (done && leaves) {
        const session = await addSessionTotals(db, sessionId, { ...done, bytes });
        const { at, workedMs } = done;
        const ended = { turnId, sessionId, session, at, workedMs, isLast: !next };
        for (const reader of this.context.features.readers) await reader.turnEnded?.(db, ended, read);
        emit({ type: 'turn.done', sessionId, turnId, agentName: session.agent_name });
      }
      if (!done) await addStoredBytes(db, sessionId, bytes);
      if (state !== turn.state) emit(...(await turnChanged(db, { ...turn, ...change }, next)));
      return added;
    });
  }

  /** All entries of several turns, in order, by turn id. Unbounded: for turns with few entries. */
  async readAll(turnIds: string[]): Promise<Map<string, LogEntry[]>> {
    const rows = await this.db
      .selectFrom('archive')
      .selectAll()
      .where('turn_id', 'in', turnIds)
      .orderBy('turn_id')
      .orderBy('ordinal')
      .execute();
    const entries = new Map(turnIds.map((id): [string, LogEntry[]] => [id, []]));
    for (const row of rows) entries.get(row.turn_id)?.push(await this.#open(row));
    return entries;
  }

  /** Up to `limit` entries from ordinal `from` on, in order. */
  async read(turnId: string, from: number, limit: number): Promise<LogEntry[]> {
    if (from > MAX_ORDINAL) return [];
    const rows = await this.db
      .selectFrom('archive')
      .selectAll()
      .where('turn_id', '=', turnId)
      .where('ordinal', '>=', from)
      .orderBy('ordinal')
      .limit(limit)
      .execute();
    return Array.fromAsync(rows, (row) => this.#open(row));
  }

  /** @throws EncryptionKeyMissing: the record is readable as soon as the key is configured, and must not be replaced */
  async #open(row: ArchiveRow): Promise<LogEntry> {
    const { turn_id: turnId, ordinal, record } = row;
    try {
      return { ordinal, record: parse(this.cipher.openText(record, aadForRecord(turnId, ordinal))) };
    } catch (error) {
      if (!(error instanceof SyntaxError || error instanceof DecryptionFailed)) throw error;
      const damaged = await this.#damagedRecord(row);
      const lost = lostRecord(damaged);
      const { sessionId } = damaged;
      const fields = { sessionId, turnId, recordId: lost.id, ordinal, err: error };
      this.#losses.warn(
        `${turnId}/${ordinal}`,
        fields,
        'a record of the archive is damaged: a placeholder stands for it',
      );
      return { ordinal, record: lost };
    }
  }

  async #damagedRecord({ turn_id: turnId, ordinal }: ArchiveRow): Promise<DamagedRecord> {
    const row = await this.db
      .selectFrom('turns')
      .innerJoin('sessions', 'sessions.id', 'turns.session_id')
      .select(['previous_turn_id', 'turns.created_at', 'archived', 'archived_through', 'session_id'])
      .select(['type', 'spec_hash', 'subject_id', 'subject_type', 'subject_slug'])
      .where('turns.id', '=', turnId)
      .executeTakeFirstOrThrow();
    return {
      turnId,
      ordinal,
      isLast: row.archived === 1 && row.archived_through === ordinal,
      sessionId: row.session_id,
      previousTurnId: row.previous_turn_id,
      createdAt: row.created_at,
      owner: subjectOf(row),
      specHash: row.spec_hash,
      isRun: row.type === 'run',
    };
  }
}

function aadForRecord(turnId: string, ordinal: number): string {
  return `archive/${turnId}/${ordinal}`;
}

function parse(record: string): LogRecord {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `add`
  return JSON.parse(record) as LogRecord;
}
