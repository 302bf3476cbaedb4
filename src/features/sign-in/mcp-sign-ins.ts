import { sql, type Kysely } from 'kysely';
import type { TurnState } from '../../core/session-state.ts';
import type { Subject } from '../../core/subject.ts';
import { ActionIndex } from '../inbox/action-index.ts';
import { insertGrant, type NewGrant } from './mcp-grants.ts';
import type { NewSignInRow, SignInRow, SignInStatus } from './tables.ts';
import type { Tables } from '../../catalog/schema.ts';
import { touchSession } from '../../catalog/sessions.ts';
import { changeRows, countRows, Store } from '../../catalog/store.ts';

/** A sign-in, with its agent, subject and turn. */
export interface FoundSignIn extends SignInRow {
  /** Null for draft agents. */
  agentName: string | null;
  subjectSlug: string;
  /** The state of its turn in the catalog, which may lag: see `SignIns`. Null if the turn was never accepted. */
  turnState: TurnState | null;
}

/** An ended sign-in whose turn has not been notified yet. */
interface UnnotifiedSignIn {
  id: string;
  turnId: string;
  /** Undefined if it was replaced, since a second browser may not be the owner's. */
  by: Subject | undefined;
}

/** The sign-ins to MCP servers that turns have requested. Their data is encrypted if there are encryption keys. */
export class McpSignIns extends Store {
  readonly #actions = new ActionIndex(this.cipher);

  async insert(row: NewSignInRow): Promise<void> {
    await this.db
      .insertInto('mcp_sign_ins')
      .values({ ...row, data: this.cipher.sealText(row.data, aad(row.id)) })
      .execute();
  }

  /** Undefined if there is no such sign-in, or its session was deleted. */
  async find(id: string): Promise<FoundSignIn | undefined> {
    const row = await this.db
      .selectFrom('mcp_sign_ins')
      .leftJoin('turns', 'turns.id', 'mcp_sign_ins.turn_id')
      .leftJoin('sessions', 'sessions.id', 'turns.session_id')
      .selectAll('mcp_sign_ins')
      .select(['turns.state as turnState', 'agent_name as agentName'])
      .select((eb) => eb.fn.coalesce('subject_slug', 'mcp_sign_ins.subject_id').as('subjectSlug'))
      .where('mcp_sign_ins.id', '=', id)
      .where('deleted_at', 'is', null)
      .executeTakeFirst();
    return row && { ...row, ...this.#open(row) };
  }

  async status(id: string): Promise<SignInStatus | undefined> {
    const row = await this.db.selectFrom('mcp_sign_ins').select('status').where('id', '=', id).executeTakeFirst();
    return row?.status;
  }

  /** A sign-in to a server that a turn has requested, and that does not expire before `notBefore`. */
  async requested(
    { turnId, server }: { turnId: string; server: string },
    notBefore: string,
  ): Promise<SignInRow | undefined> {
    const row = await this.db
      .selectFrom('mcp_sign_ins')
      .selectAll()
      .where('turn_id', '=', turnId)
      .where('server', '=', server)
      .where('status', '=', 'requested')
      .where('expires_at', '>', notBefore)
      .executeTakeFirst();
    return row && this.#open(row);
  }

  /**
   * Stores the data with which the user is sent to the authorization server. Restarts a sign-in whose code was being
   * exchanged. Returns false if the sign-in has ended, or the user was sent there since the row was read.
   */
  async redirect({ id, redirects }: Pick<SignInRow, 'id' | 'redirects'>, data: string): Promise<boolean> {
    return changeRows(
      withStatus(this.db, id, ['requested', 'exchanging'])
        .set({ data: this.cipher.sealText(data, aad(id)), status: 'requested', redirects: redirects + 1 })
        .where('redirects', '=', redirects),
    );
  }

  /** The number of sign-ins of a turn to a server that were replaced since `time`. */
  async replacedSince({ turn_id, server }: Pick<SignInRow, 'turn_id' | 'server'>, time: string): Promise<number> {
    return countRows(
      this.db
        .selectFrom('mcp_sign_ins')
        .where('turn_id', '=', turn_id)
        .where('server', '=', server)
        .where('status', '=', 'replaced')
        .where('ended_at', '>=', time),
    );
  }

  /** Changes the status. Returns false if it is none of `from`, so that only one of several requests changes it. */
  async change(id: string, from: SignInStatus[], to: SignInStatus): Promise<boolean> {
    return changeStatus(this.db, id, from, to);
  }

  /** Ends a sign-in with a grant, which replaces the subject's earlier one. Returns false if it is not `exchanging`. */
  async grant(id: string, grant: NewGrant): Promise<boolean> {
    return this.db.transaction().execute(async (transaction) => {
      if (!(await changeStatus(transaction, id, ['exchanging'], 'granted'))) return false;
      await insertGrant(transaction, this.cipher, grant);
      return true;
    });
  }

  /**
   * The ended sign-ins of accepted turns that have not been notified of the end. A sign-in that still waits for the
   * user is included if another one has given access to the same server.
   */
  async unnotified(limit: number): Promise<UnnotifiedSignIn[]> {
    const rows = await this.db
      .selectFrom('mcp_sign_ins')
      .innerJoin('turns', 'turns.id', 'mcp_sign_ins.turn_id')
      .innerJoin('sessions', 'sessions.id', 'turns.session_id')
      .leftJoin('mcp_grants', (join) =>
        join
          .onRef('mcp_grants.subject_id', '=', 'mcp_sign_ins.subject_id')
          .onRef('mcp_grants.server', '=', 'mcp_sign_ins.server'),
      )
      .select(['mcp_sign_ins.id', 'mcp_sign_ins.status', 'turn_id as turnId'])
      .select(['sessions.subject_id as subjectId', 'subject_type as subjectType', 'subject_slug as subjectSlug'])
      .where('told', '=', 0)
      .where('turns.sequence', 'is not', null)
      .where((eb) =>
        eb.or([
          eb('mcp_sign_ins.status', 'in', ['granted', 'declined', 'replaced']),
          eb.and([
            eb('mcp_grants.id', 'is not', null),
            eb('mcp_grants.id', '!=', eb.fn.coalesce('mcp_sign_ins.replaces', sql.lit(''))),
          ]),
        ]),
      )
      .orderBy('mcp_sign_ins.id')
      .limit(limit)
      .execute();
    return rows.map(({ id, status, turnId, ...by }) => ({ id, turnId, by: status === 'replaced' ? undefined : by }));
  }

  /**
   * Decides or supersedes the action of an ended sign-in in the inbox. A sign-in that still waited for the user ends as
   * granted. May be repeated.
   */
  async settle({ id, turnId }: Pick<UnnotifiedSignIn, 'id' | 'turnId'>): Promise<void> {
    await this.context.outbox.transaction(async (db, emit) => {
      const turns = db.selectFrom('turns').select(['session_id', 'created_at']).where('id', '=', turnId);
      const turn = await turns.executeTakeFirst();
      // Locks the session's row.
      if (!turn || !(await touchSession(db, { id: turn.session_id, at: turn.created_at }))) return;
      await changeStatus(db, id, ['requested'], 'granted');
      emit(...(await this.#actions.signedIn(db, turnId, id)));
    });
  }

  /** Records that the turn was notified of the end. */
  async setNotified(id: string): Promise<void> {
    await this.db.updateTable('mcp_sign_ins').set({ told: 1 }).where('id', '=', id).execute();
  }

  /** Deletes the sign-ins that were requested before `time`, unless their turns run. */
  async forget(time: string): Promise<void> {
    await this.db
      .deleteFrom('mcp_sign_ins')
      .where('created_at', '<', time)
      .where((eb) =>
        eb.not(
          eb.exists(
            eb
              .selectFrom('turns')
              .select('id')
              .whereRef('turns.id', '=', 'mcp_sign_ins.turn_id')
              .where('archived', '=', sql.lit(0)),
          ),
        ),
      )
      .execute();
  }

  #open(row: SignInRow): SignInRow {
    return { ...row, data: this.cipher.openText(row.data, aad(row.id)) };
  }
}

function withStatus(db: Kysely<Tables>, id: string, statuses: SignInStatus[]) {
  return db.updateTable('mcp_sign_ins').where('id', '=', id).where('status', 'in', statuses);
}

function changeStatus(db: Kysely<Tables>, id: string, from: SignInStatus[], to: SignInStatus): Promise<boolean> {
  const ended = isEnd(to) && { ended_at: new Date().toISOString() };
  return changeRows(withStatus(db, id, from).set({ status: to, ...ended }));
}

function isEnd(status: SignInStatus): boolean {
  return status === 'granted' || status === 'declined' || status === 'replaced';
}

function aad(id: string): string {
  return `mcp_sign_ins/${id}`;
}
