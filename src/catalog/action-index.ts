import type { Transaction } from 'kysely';
import type { Cipher } from '../encryption/cipher.ts';
import { callKey, type CallKey } from '../core/tool-records.ts';
import type { Subject } from '../core/subject.ts';
import type { OutboxEvent } from './outbox.ts';
import type { ActionEventType, ActionRow, Tables } from './schema.ts';

/** The parts of an action that may be confidential, and are encrypted. */
export interface ActionDetail {
  tool: { server: string | null; name: string };
  /** Undefined if they are too large for the index. */
  arguments?: unknown;
}

/** An action to add to the index. */
export interface NewAction extends CallKey {
  id: string;
  /** Of the record that asks for it. */
  ordinal: number;
  kind: ActionRow['kind'];
  requestedAt: string;
  /** Who may decide it. */
  audience: string[];
  detail: ActionDetail;
}

/** What one subject, or a timer, has decided. */
export interface ActionDecision {
  by: Subject;
  decision: 'allow' | 'deny' | 'respond';
  at: string;
  reason?: string;
}

/** How the input of a turn answers the pending calls of the previous turn. */
export interface Answers {
  by: Subject;
  at: string;
  items: (CallKey & Pick<ActionDecision, 'decision' | 'reason'>)[];
}

/** An action with its decrypted parts. */
export interface Action extends Omit<ActionRow, 'detail' | 'decisions'> {
  detail: ActionDetail | null;
  decisions: ActionDecision[];
}

/** A turn of the index. */
interface IndexedTurn {
  id: string;
  session_id: string;
  previous_turn_id: string | null;
  sequence: number | null;
}

/**
 * Keeps the index of actions in the transactions that change their turns and sessions. The caller holds the lock on the
 * session's row, so the changes of one session follow each other.
 */
export class ActionIndex {
  readonly #cipher: Cipher;

  constructor(cipher: Cipher) {
    this.#cipher = cipher;
  }

  /**
   * Adds the calls that a turn waits for. If the session has gone on in the meantime, they are settled at once: a client
   * may answer before the turn's end is indexed.
   */
  async request(db: Transaction<Tables>, turn: IndexedTurn, actions: NewAction[]): Promise<OutboxEvent[]> {
    if (actions.length === 0) return [];
    const session = await db
      .selectFrom('sessions')
      .select(['agent_name', 'closed'])
      .where('id', '=', turn.session_id)
      .executeTakeFirstOrThrow();
    const rows = actions.map(({ id, threadId, toolCallId, kind, requestedAt, detail }): ActionRow => ({
      id,
      session_id: turn.session_id,
      turn_id: turn.id,
      thread_id: threadId,
      tool_call_id: toolCallId,
      kind,
      status: 'pending',
      agent_name: session.agent_name,
      requested_at: requestedAt,
      expires_at: null,
      detail: this.#cipher.sealText(JSON.stringify(detail), aadFor(id, 'detail')),
      decisions: this.#seal(id, []),
    }));
    for (const row of rows) await db.insertInto('actions').values(row).execute();
    for (const { id, audience, requestedAt } of actions) {
      const of = { action_id: id, settled: 0, agent_name: session.agent_name ?? '', requested_at: requestedAt };
      await db
        .insertInto('action_audience')
        .values([...new Set(audience)].map((one) => ({ ...of, audience: one })))
        .execute();
    }
    const created = rows.map((row) => eventOf('action.created', row, 0));
    return [...created, ...(await this.#settleEarly(db, turn, { rows, isClosed: session.closed === 1 }))];
  }

  /** Settles what is pending before an accepted turn: what its input answers is decided, the rest superseded. */
  async accepted(db: Transaction<Tables>, turn: IndexedTurn, answers: Answers | undefined): Promise<OutboxEvent[]> {
    const { session_id: sessionId, previous_turn_id: previousTurnId, sequence } = turn;
    const rows = await db
      .selectFrom('actions')
      .innerJoin('turns', 'turns.id', 'actions.turn_id')
      .selectAll('actions')
      .where('actions.session_id', '=', sessionId)
      .where('actions.status', 'in', ['pending', 'superseded'])
      // A repetition must not settle what later turns wait for.
      .where('turns.sequence', '<', sequence ?? 0)
      .orderBy('actions.id')
      .execute();
    // A fork may answer what an earlier fork has superseded.
    const open = rows.filter(({ status, turn_id: turnId }) => status === 'pending' || turnId === previousTurnId);
    return this.#settle(db, open, (row) => (row.turn_id === previousTurnId ? answers : undefined));
  }

  /** Supersedes the pending actions of a turn that has ended, apart from the calls that it has ended on. */
  async ended(db: Transaction<Tables>, turnId: string, pending: CallKey[]): Promise<OutboxEvent[]> {
    const kept = new Set(pending.map(callKey));
    const rows = await db
      .selectFrom('actions')
      .selectAll()
      .where('turn_id', '=', turnId)
      .where('status', '=', 'pending')
      .orderBy('id')
      .execute();
    const left = rows.filter(
      ({ thread_id: threadId, tool_call_id: toolCallId }) => !kept.has(callKey({ threadId, toolCallId })),
    );
    return this.#settle(db, left, () => undefined);
  }

  /** Supersedes all pending actions of a session that was closed or, with `erase`, deleted. */
  async sessionEnded(
    db: Transaction<Tables>,
    sessionId: string,
    { erase }: { erase: boolean },
  ): Promise<OutboxEvent[]> {
    const all = db.selectFrom('actions').selectAll().where('session_id', '=', sessionId);
    const rows = await all.where('status', '=', 'pending').orderBy('id').execute();
    const events = await this.#settle(db, rows, () => undefined);
    if (erase) await db.updateTable('actions').set({ detail: null }).where('session_id', '=', sessionId).execute();
    return events;
  }

  /** The stored form of a turn's answers. */
  sealAnswers(turnId: string, answers: Answers | undefined): string | null {
    return answers ? this.#cipher.sealText(JSON.stringify(answers), aadForAnswers(turnId)) : null;
  }

  /** Decrypts an action. */
  open(row: ActionRow): Action {
    const detail = row.detail === null ? null : this.#cipher.openText(row.detail, aadFor(row.id, 'detail'));
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `request`
    const opened = detail === null ? null : (JSON.parse(detail) as ActionDetail);
    return { ...row, detail: opened, decisions: this.#decisionsOf(row) };
  }

  /** Settles new actions of a turn that a later turn has followed, or whose session was closed. */
  async #settleEarly(
    db: Transaction<Tables>,
    turn: IndexedTurn,
    { rows, isClosed }: { rows: ActionRow[]; isClosed: boolean },
  ): Promise<OutboxEvent[]> {
    const later = await db
      .selectFrom('turns')
      .select(['id', 'previous_turn_id', 'answers'])
      .where('session_id', '=', turn.session_id)
      .where('sequence', '>', turn.sequence ?? 0)
      .orderBy('sequence')
      .execute();
    if (later.length === 0 && !isClosed) return [];
    const answering = later.find((one) => one.previous_turn_id === turn.id && one.answers !== null);
    const answers = answering?.answers && this.#cipher.openText(answering.answers, aadForAnswers(answering.id));
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `sealAnswers`
    const opened = answers ? (JSON.parse(answers) as Answers) : undefined;
    return this.#settle(db, rows, () => opened);
  }

  async #settle(
    db: Transaction<Tables>,
    rows: ActionRow[],
    answersTo: (row: ActionRow) => Answers | undefined,
  ): Promise<OutboxEvent[]> {
    const events: OutboxEvent[] = [];
    for (const row of rows) {
      const answers = answersTo(row);
      const item = answers?.items.find(
        ({ threadId, toolCallId }) => threadId === row.thread_id && toolCallId === row.tool_call_id,
      );
      if (!item && row.status !== 'pending') continue;
      const status = item ? 'decided' : 'superseded';
      const decisions = this.#decisionsOf(row);
      if (answers && item) {
        const { decision, reason } = item;
        decisions.push({ by: answers.by, decision, at: answers.at, ...(reason !== undefined && { reason }) });
      }
      await db
        .updateTable('actions')
        .set({ status, decisions: this.#seal(row.id, decisions) })
        .where('id', '=', row.id)
        .execute();
      await db.updateTable('action_audience').set({ settled: 1 }).where('action_id', '=', row.id).execute();
      events.push(eventOf(item ? 'action.decided' : 'action.expired', { ...row, status }, decisions.length));
    }
    return events;
  }

  #seal(id: string, decisions: ActionDecision[]): string {
    return this.#cipher.sealText(JSON.stringify(decisions), aadFor(id, 'decisions'));
  }

  #decisionsOf({ id, decisions }: Pick<ActionRow, 'id' | 'decisions'>): ActionDecision[] {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `#seal`
    return JSON.parse(this.#cipher.openText(decisions, aadFor(id, 'decisions'))) as ActionDecision[];
  }
}

function eventOf(type: ActionEventType, row: ActionRow, decisions: number): OutboxEvent {
  const { id, status, session_id: sessionId, turn_id: turnId, agent_name: agentName } = row;
  return { type, sessionId, turnId, agentName, action: { id, status, decisions } };
}

function aadFor(actionId: string, part: 'detail' | 'decisions'): string {
  return `action/${actionId}/${part}`;
}

function aadForAnswers(turnId: string): string {
  return `turn/${turnId}/answers`;
}
