import type { Transaction } from 'kysely';
import type { Cipher } from '../../encryption/cipher.ts';
import { callKey, type CallKey } from '../../core/tool-records.ts';
import type { BudgetReport } from '../../core/budget.ts';
import type { ApprovalPolicy, CallSource } from '../../core/records/calls.ts';
import type { Subject } from '../../core/subject.ts';
import { endKeptAnswers, keptAnswers, type StoredAnswer } from './kept-answer-rows.ts';
import type { LogReader } from '../../catalog/log-reader.ts';
import type { OutboxEvent } from '../../catalog/outbox.ts';
import type { ActionEventType, ActionStatus } from '../../catalog/outbox.ts';
import { changeRows } from '../../catalog/store.ts';
import type { ActionRow } from './tables.ts';
import type { Tables, TurnRow } from '../../catalog/schema.ts';

declare module '../../catalog/log-reader.ts' {
  interface StartReading {
    answers?: Answers | undefined;
  }
  interface EntriesReading {
    changes?: ActionChange[];
  }
}

/** The parts of an action that may be confidential, and are encrypted. */
export interface ActionDetail {
  tool: { server: string | null; name: string | null };
  /** Undefined if the arguments are too large for the index. */
  arguments?: unknown;
  /** The call, if its arguments are not in the index. */
  source?: Pick<CallSource, 'turnId' | 'messageId' | 'index'>;
  policy?: ApprovalPolicy;
  /** As in the pending call. */
  isAskedAgain?: true;
  /** The link with which a sign-in begins. */
  authUrl?: string;
  /** A budget, as it was when it was reached. */
  budget?: BudgetReport;
}

/** An action to add to the index. */
export interface NewAction extends Pick<
  ActionRow,
  'id' | 'key' | 'thread_id' | 'tool_call_id' | 'kind' | 'requested_at' | 'expires_at'
> {
  /** The groups that may decide it, and those that may, too, once it is escalated. */
  audience: string[];
  escalatedTo: string[];
  detail: ActionDetail;
}

/** The decision of a subject or, without a subject, the expiry. */
export interface ActionDecision {
  by?: Subject;
  decision: 'allow' | 'deny' | 'respond' | 'expired';
  at: string;
  reason?: string;
  /** Edited arguments; null if they are too large for the index. */
  arguments?: Record<string, unknown> | null;
}

/** The change of the actions with these keys by the record at `ordinal` of a turn's log. */
export type ActionChange = { ordinal: number } & (
  | { type: 'requested'; action: NewAction }
  /** A vote, or the expiry; `remaining` votes are still needed. */
  | { type: 'decided'; key: string; decision: ActionDecision; remaining: number }
  | { type: 'escalated'; key: string }
  /** The call has a result: `isResponse` if it is the response for which the call may have waited. */
  | { type: 'answered'; key: string; at: string; by?: Subject; isResponse: boolean }
  /** The turn has ended on these actions. */
  | { type: 'ended'; pending: string[] }
);

/** How the input of a turn answers the pending calls of the previous turn; undefined if it answers none. */
export interface Answers {
  by: Subject;
  at: string;
  /** `isKept`: the answer came, and was indexed, before the turn could start. */
  items: (CallKey & Pick<ActionDecision, 'decision' | 'reason' | 'arguments'> & { isKept?: true })[];
}

/** An action with its decrypted parts. */
export interface Action extends Omit<ActionRow, 'detail' | 'decisions'> {
  detail: ActionDetail | null;
  decisions: ActionDecision[];
}

/** A turn, as the index needs it. */
type IndexedTurn = Pick<TurnRow, 'id' | 'session_id' | 'previous_turn_id' | 'sequence'>;

/** The new state of an action. */
interface Outcome {
  status: ActionStatus;
  decision?: ActionDecision;
}

const SUPERSEDED: Outcome = { status: 'superseded' };

export function inboxReader(index: ActionIndex): LogReader {
  return {
    turnAccepted: async (db, { turnId: id, sessionId, previousTurnId, sequence, answers }, emit) => {
      const turn = { id, session_id: sessionId, previous_turn_id: previousTurnId, sequence };
      emit(...(await index.accepted(db, turn, answers)));
    },
    entriesAdded: async (db, turn, { changes = [] }, emit) => {
      const added = changes.filter(({ ordinal }) => ordinal > turn.archived_through);
      emit(...(await index.apply(db, turn, added)));
    },
    sessionEnded: async (db, sessionId, { isDeleted }, emit) =>
      emit(...(await index.sessionEnded(db, sessionId, { erase: isDeleted }))),
  };
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
   * Applies the changes of a turn's log entries. Repeated changes have no effect: earlier versions have applied entries
   * that were not in the archive.
   */
  async apply(db: Transaction<Tables>, turn: IndexedTurn, changes: ActionChange[]): Promise<OutboxEvent[]> {
    if (changes.length === 0) return [];
    const isAffected =
      changes.some(({ type }) => type === 'requested') || (await this.#pending(db, turn.id)).length > 0;
    // The turn has tools, but no actions.
    if (!isAffected) return [];
    const events: OutboxEvent[] = [];
    for (const change of changes) {
      const changed =
        change.type === 'requested'
          ? await this.#request(db, turn, change.action)
          : await this.#change(db, turn.id, change);
      events.push(...changed);
    }
    return events;
  }

  /**
   * Adds an action on which a turn waits. It is settled at once if a later turn has started: a client may answer before
   * the turn's end is indexed.
   */
  async #request(db: Transaction<Tables>, turn: IndexedTurn, action: NewAction): Promise<OutboxEvent[]> {
    const { audience, escalatedTo, detail, ...columns } = action;
    const { id, kind } = columns;
    const session = await db
      .selectFrom('sessions')
      .select(['agent_name', 'closed'])
      .where('id', '=', turn.session_id)
      .executeTakeFirstOrThrow();
    const row: ActionRow = {
      ...columns,
      session_id: turn.session_id,
      turn_id: turn.id,
      status: 'pending',
      agent_name: session.agent_name,
      escalated_to: JSON.stringify(escalatedTo),
      detail: this.#cipher.sealText(JSON.stringify(detail), aadFor(id, 'detail')),
      decisions: this.#seal(id, []),
    };
    if (kind === 'sign_in' && (await isRequested(db, row))) return [];
    const added = db.insertInto('actions').values(row);
    if (!(await changeRows(added.onConflict((conflict) => conflict.column('id').doNothing())))) return [];
    await addAudience(db, row, audience);
    const early = await this.#settleEarly(db, turn, { row, isClosed: session.closed === 1 });
    return [eventOf('action.created', row, 0), ...early];
  }

  async #change(
    db: Transaction<Tables>,
    turnId: string,
    change: Exclude<ActionChange, { type: 'requested' }>,
  ): Promise<OutboxEvent[]> {
    const rows = await this.#pending(db, turnId);
    if (change.type === 'ended') {
      const kept = new Set(change.pending);
      return this.#settle(db, rows, (row) => (kept.has(row.key) ? undefined : SUPERSEDED));
    }
    const asked = rows.filter(({ key }) => key === change.key);
    switch (change.type) {
      case 'decided': {
        const { decision } = change;
        const isKnown = (one: ActionDecision) => one.at === decision.at && one.by?.subjectId === decision.by?.subjectId;
        const undecided = asked.filter((row) => !this.#decisionsOf(row).some(isKnown));
        return this.#settle(db, undecided, () => ({ status: statusAfter(change), decision }));
      }
      case 'answered': {
        const { at, by } = change;
        const decision: ActionDecision = { ...(by && { by }), decision: 'respond', at };
        return this.#settle(db, asked, () => (change.isResponse ? { status: 'decided', decision } : SUPERSEDED));
      }
      case 'escalated': {
        // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `#request`
        for (const row of asked) await addAudience(db, row, JSON.parse(row.escalated_to) as string[]);
        // The action is new for the groups that may decide it from now on.
        return asked.map((row) => eventOf('action.created', row, this.#decisionsOf(row).length));
      }
    }
  }

  /** Settles the actions that are pending before an accepted turn: its input decides some; the rest is superseded. */
  async accepted(db: Transaction<Tables>, turn: IndexedTurn, answers: Answers | undefined): Promise<OutboxEvent[]> {
    const { session_id: sessionId, previous_turn_id: previousTurnId, sequence } = turn;
    const kept = await endKeptAnswers(db, sessionId, sequence ?? 0);
    const isKept = (row: ActionRow) => kept.get(row.turn_id)?.has(row.key) === true;
    const rows = await db
      .selectFrom('actions')
      .innerJoin('turns', 'turns.id', 'actions.turn_id')
      .selectAll('actions')
      .where('actions.session_id', '=', sessionId)
      .where((eb) =>
        eb.or([
          eb('actions.status', 'in', ['pending', 'superseded']),
          ...(kept.size > 0 ? [eb('actions.turn_id', 'in', [...kept.keys()])] : []),
        ]),
      )
      // A repetition must not settle the actions of later turns.
      .where('turns.sequence', '<', sequence ?? 0)
      .orderBy('actions.id')
      .execute();
    // A fork may answer actions that an earlier fork has superseded.
    const open = rows.filter((row) => {
      const { status, turn_id: turnId } = row;
      return status === 'decided' ? isKept(row) : status === 'pending' || turnId === previousTurnId;
    });
    return this.#settle(db, open, (row) => answerTo(row, row.turn_id === previousTurnId ? answers : undefined));
  }

  /** Settles pending actions of an ended turn, whose answers are kept until the next turn starts. */
  async kept(db: Transaction<Tables>, turnId: string, answers: StoredAnswer[]): Promise<OutboxEvent[]> {
    const decisions = new Map(answers.map(({ answer, decision }) => [callKey(answer), decision]));
    return this.#settle(db, await this.#pending(db, turnId), (row) => {
      const decision = decisions.get(row.key);
      return decision && { status: 'decided', decision };
    });
  }

  /** Decides the pending action of an ended sign-in; supersedes the action of a replaced one. */
  async signedIn(db: Transaction<Tables>, turnId: string, signInId: string): Promise<OutboxEvent[]> {
    const rows = (await this.#pending(db, turnId)).filter(({ key }) => key === signInId);
    const outcome = await signInOutcome(db, signInId);
    return this.#settle(db, rows, () => outcome);
  }

  /** Supersedes all pending actions of a session that was closed or, with `erase`, deleted. */
  async sessionEnded(
    db: Transaction<Tables>,
    sessionId: string,
    { erase }: { erase: boolean },
  ): Promise<OutboxEvent[]> {
    const all = db.selectFrom('actions').selectAll().where('session_id', '=', sessionId);
    const rows = await all.where('status', '=', 'pending').orderBy('id').execute();
    const events = await this.#settle(db, rows, () => SUPERSEDED);
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

  /** Settles a new action that was already answered, superseded by a later turn, or whose session was closed. */
  async #settleEarly(
    db: Transaction<Tables>,
    turn: IndexedTurn,
    { row, isClosed }: { row: ActionRow; isClosed: boolean },
  ): Promise<OutboxEvent[]> {
    const later = await db
      .selectFrom('turns')
      .select(['id', 'previous_turn_id', 'answers'])
      .where('session_id', '=', turn.session_id)
      .where('sequence', '>', turn.sequence ?? 0)
      .orderBy('sequence')
      .execute();
    if (row.kind === 'sign_in') {
      const signedIn = await this.signedIn(db, turn.id, row.key);
      if (signedIn.length > 0) return signedIn;
    }
    if (later.length === 0 && !isClosed) {
      return this.kept(db, turn.id, await keptAnswers(db, this.#cipher, turn.id));
    }
    const answering = later.find((one) => one.previous_turn_id === turn.id && one.answers !== null);
    const answers = answering?.answers && this.#cipher.openText(answering.answers, aadForAnswers(answering.id));
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `sealAnswers`
    const opened = answers ? (JSON.parse(answers) as Answers) : undefined;
    return this.#settle(db, [row], () => answerTo(row, opened));
  }

  /** Gives actions their new states; actions without an outcome stay as they are. */
  async #settle(
    db: Transaction<Tables>,
    rows: ActionRow[],
    outcomeOf: (row: ActionRow) => Outcome | undefined,
  ): Promise<OutboxEvent[]> {
    const events: OutboxEvent[] = [];
    for (const row of rows) {
      const outcome = outcomeOf(row);
      if (!outcome) continue;
      // The turn may have resumed before its sign-in was settled here.
      const signedIn = row.kind === 'sign_in' && !outcome.decision ? await signInOutcome(db, row.key) : undefined;
      const { status, decision } = signedIn?.decision ? signedIn : outcome;
      const decisions = [...this.#decisionsOf(row), ...(decision ? [decision] : [])];
      await db
        .updateTable('actions')
        .set({ status, decisions: this.#seal(row.id, decisions) })
        .where('id', '=', row.id)
        .execute();
      const settled = Number(status !== 'pending');
      await db.updateTable('action_audience').set({ settled }).where('action_id', '=', row.id).execute();
      const isDecision = status === 'decided' || status === 'pending';
      events.push(eventOf(isDecision ? 'action.decided' : 'action.expired', { ...row, status }, decisions.length));
    }
    return events;
  }

  #pending(db: Transaction<Tables>, turnId: string): Promise<ActionRow[]> {
    const actions = db.selectFrom('actions').selectAll().where('turn_id', '=', turnId);
    return actions.where('status', '=', 'pending').orderBy('id').execute();
  }

  #seal(id: string, decisions: ActionDecision[]): string {
    return this.#cipher.sealText(JSON.stringify(decisions), aadFor(id, 'decisions'));
  }

  #decisionsOf({ id, decisions }: Pick<ActionRow, 'id' | 'decisions'>): ActionDecision[] {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `#seal`
    return JSON.parse(this.#cipher.openText(decisions, aadFor(id, 'decisions'))) as ActionDecision[];
  }
}

function statusAfter({ decision: { decision }, remaining }: Extract<ActionChange, { type: 'decided' }>): ActionStatus {
  if (decision === 'expired') return 'expired';
  return remaining > 0 ? 'pending' : 'decided';
}

/** The outcome of a turn's input for an action: a pending action that it does not answer is superseded. */
function answerTo(row: ActionRow, answers: Answers | undefined): Outcome | undefined {
  const item = answers?.items.find((one) => callKey(one) === row.key);
  if (!answers || !item) return row.status === 'superseded' ? undefined : SUPERSEDED;
  const { threadId: _, toolCallId: __, isKept, ...decision } = item;
  if (isKept && row.status === 'decided') return undefined;
  return { status: 'decided', decision: { by: answers.by, at: answers.at, ...decision } };
}

/** Whether another thread of the turn has requested the same action. */
async function isRequested(db: Transaction<Tables>, { turn_id, key }: ActionRow): Promise<boolean> {
  const rows = db.selectFrom('actions').select('id').where('turn_id', '=', turn_id).where('key', '=', key);
  return (await rows.executeTakeFirst()) !== undefined;
}

/** Adds groups of callers to those that may decide an action. */
async function addAudience(db: Transaction<Tables>, row: ActionRow, groups: string[]): Promise<void> {
  const { id: action_id, agent_name: agentName, requested_at } = row;
  const of = { action_id, settled: 0, agent_name: agentName ?? '', requested_at };
  if (groups.length === 0) return;
  await db
    .insertInto('action_audience')
    .values([...new Set(groups)].map((audience) => ({ ...of, audience })))
    .onConflict((conflict) => conflict.columns(['action_id', 'audience']).doNothing())
    .execute();
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

/**
 * The outcome of a sign-in: its subject's decision, or superseded if the turn requests another sign-in instead.
 * Undefined if it has not ended.
 */
async function signInOutcome(db: Transaction<Tables>, id: string): Promise<Outcome | undefined> {
  const row = await db
    .selectFrom('mcp_sign_ins')
    .innerJoin('turns', 'turns.id', 'turn_id')
    .innerJoin('sessions', 'sessions.id', 'turns.session_id')
    .select(['status', 'mcp_sign_ins.ended_at as at'])
    .select(['sessions.subject_id as subjectId', 'subject_type as subjectType', 'subject_slug as subjectSlug'])
    .where('mcp_sign_ins.id', '=', id)
    .executeTakeFirst();
  if (row?.status === 'replaced') return SUPERSEDED;
  if (!row || row.at === null) return undefined;
  const { status, at, ...by } = row;
  return { status: 'decided', decision: { by, decision: status === 'granted' ? 'allow' : 'deny', at } };
}
