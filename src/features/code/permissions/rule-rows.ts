import type { ExpressionBuilder, Selectable } from 'kysely';
import type { Tables } from '../../../catalog/schema.ts';
import { changeRows, countRows, Store } from '../../../catalog/store.ts';
import type { Subject } from '../../../core/subject.ts';
import type { CallKey } from '../../../core/tool-records.ts';
import { newId } from '../../../engine/new-id.ts';
import { hashOf } from '../../../lib/hash.ts';
import { MAX_RULES, type PermissionRule } from '../../../spec/permission-rule.ts';
import '../tables.ts';

/** `cell`: until the end of the cell that has made the call. */
export type RuleScope = 'always' | 'session' | 'cell';

/** The scope of a rule. */
export type RuleTarget =
  | { scope: 'always'; subjectId: string; agentName: string }
  | { scope: 'session'; sessionId: string }
  | ({ scope: 'cell'; sessionId: string } & CallKey);

/** A rule that a user has made. */
export interface StoredRule {
  id: string;
  scope: RuleScope;
  rule: PermissionRule;
  createdAt: string;
  createdBy: Subject;
}

type Row = Selectable<Tables['permission_rules']>;

/** The rules that users have made. `now` is in milliseconds since 1970. */
export class PermissionRules extends Store {
  /**
   * The rules that currently apply to these targets, oldest first. A rule for an agent applies only to the agent that
   * had the name when the rule was made.
   */
  async in(places: readonly RuleTarget[], now: number): Promise<StoredRule[]> {
    const rows = await this.db
      .selectFrom('permission_rules as rules')
      .leftJoin('agents', 'agents.name', 'rules.agent_name')
      .selectAll('rules')
      .where('place', 'in', places.map(placeKey))
      .where((eb) => eb.or([eb('expires_at', 'is', null), eb('expires_at', '>', isoOf(now))]))
      .where((eb) => eb.or([eb('agent_name', 'is', null), eb('agents.created_at', '<=', eb.ref('rules.created_at'))]))
      .orderBy('rules.created_at')
      .orderBy('rules.id')
      .execute();
    return rows.map((row) => this.#open(row));
  }

  /** Adds a rule, or finds an equal one; undefined if the target already has the maximum number of rules. */
  async add(
    place: RuleTarget,
    { rule, by, id = newId('rule') }: { rule: PermissionRule; by: Subject; id?: string },
    now: number,
  ): Promise<{ stored: StoredRule; isNew: boolean } | undefined> {
    const key = placeKey(place);
    const hash = hashOf(rule);
    const { db } = this;
    await db
      .deleteFrom('permission_rules')
      .where('place', '=', key)
      .where((eb) => eb.or([eb('expires_at', '<=', isoOf(now)), isOfEarlierAgent(eb)]))
      .execute();
    const equal = () =>
      db
        .selectFrom('permission_rules')
        .selectAll()
        .where('place', '=', key)
        .where('hash', '=', hash)
        .executeTakeFirst();
    const known = await equal();
    if (known) return { stored: this.#open(known), isNew: known.id === id };
    if ((await countRows(db.selectFrom('permission_rules').where('place', '=', key))) >= MAX_RULES) return undefined;
    const row: Row = {
      id,
      scope: place.scope,
      place: key,
      session_id: place.scope === 'always' ? null : place.sessionId,
      agent_name: place.scope === 'always' ? place.agentName : null,
      hash,
      rule: this.cipher.sealText(JSON.stringify({ rule, by }), aadFor(id)),
      created_at: isoOf(now),
      expires_at: rule.expires_at ?? null,
    };
    await db
      .insertInto('permission_rules')
      .values(row)
      .onConflict((conflict) => conflict.doNothing())
      .execute();
    const stored = await equal();
    return stored && { stored: this.#open(stored), isNew: stored.id === id };
  }

  /** Deletes a rule. Returns whether the target had it. */
  async delete(place: RuleTarget, id: string): Promise<boolean> {
    return changeRows(this.db.deleteFrom('permission_rules').where('id', '=', id).where('place', '=', placeKey(place)));
  }

  /** Deletes the rules of an ended cell. */
  async deleteCell(sessionId: string, call: CallKey): Promise<void> {
    const place = placeKey({ scope: 'cell', sessionId, ...call });
    await this.db.deleteFrom('permission_rules').where('place', '=', place).execute();
  }

  #open({ id, scope, rule: sealed, created_at: createdAt }: Row): StoredRule {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- written by `add`
    const { rule, by } = JSON.parse(this.cipher.openText(sealed, aadFor(id))) as { rule: PermissionRule; by: Subject };
    return { id, scope, rule, createdAt, createdBy: by };
  }
}

/** Matches rules for an agent that was deleted after the rule was made; another agent may have the name now. */
function isOfEarlierAgent(eb: ExpressionBuilder<Tables, 'permission_rules'>) {
  return eb.exists(
    eb
      .selectFrom('agents')
      .select('agents.name')
      .whereRef('agents.name', '=', 'permission_rules.agent_name')
      .whereRef('agents.created_at', '>', 'permission_rules.created_at'),
  );
}

/** The key of a target. No id of a session is the JSON of another target. */
function placeKey(place: RuleTarget): string {
  if (place.scope === 'session') return place.sessionId;
  const { scope, ...ids } = place;
  return JSON.stringify([scope, hashOf(ids)]);
}

function isoOf(ms: number): string {
  return new Date(ms).toISOString();
}

function aadFor(id: string): string {
  return `permission_rules/${id}`;
}
