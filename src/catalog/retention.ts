import type { ExpressionBuilder } from 'kysely';
import type { SessionRow, Tables } from './schema.ts';
import { SHOWN_SESSIONS } from './session-types.ts';
import { Store } from './store.ts';

/** Finds sessions whose retention has ended, by the `config.retention_days` of their agents. */
export class Retention extends Store {
  /** The distinct retention periods of all specs, in days. */
  async days(): Promise<number[]> {
    const rows = await this.db
      .selectFrom('specs')
      .select('retention_days')
      .distinct()
      .where('retention_days', '>', 0)
      .execute();
    return rows.flatMap(({ retention_days: days }) => days ?? []);
  }

  /**
   * Up to `limit` sessions with a retention of `days` that had no activity since `before`. The newest version of an
   * agent determines the retention of all its sessions; if the agent was deleted, each session's own version does. The
   * own spec of a draft, or of a run, determines its retention.
   */
  async idle({ days, before }: { days: number; before: string }, limit: number): Promise<SessionRow[]> {
    const isDue = (eb: ExpressionBuilder<Tables, 'specs' | 'sessions'>) =>
      eb.and([
        eb('specs.retention_days', '=', days),
        eb('sessions.active_at', '<', before),
        eb('sessions.deleted_at', 'is', null),
      ]);
    const drafts = await this.db
      .selectFrom('specs')
      .innerJoin('sessions', 'sessions.spec_hash', 'specs.hash')
      .selectAll('sessions')
      .where(isDue)
      .where('sessions.type', 'in', ['session/draft', 'run'])
      .limit(limit)
      .execute();
    // Cross joins, since SQLite keeps their order: it reads an agent's versions, then the due sessions of each.
    const ofAgents = await this.db
      .selectFrom('specs')
      .innerJoin('agents', 'agents.spec_hash', 'specs.hash')
      .innerJoin('agent_versions', 'agent_versions.agent_name', 'agents.name')
      .crossJoin('sessions')
      .whereRef('sessions.agent_name', '=', 'agent_versions.agent_name')
      .whereRef('sessions.agent_version', '=', 'agent_versions.version')
      .selectAll('sessions')
      .where(isDue)
      .where('sessions.type', 'in', SHOWN_SESSIONS)
      .limit(limit)
      .execute();
    const ofDeletedAgents = await this.db
      .selectFrom('specs')
      .innerJoin('agent_versions', 'agent_versions.spec_hash', 'specs.hash')
      .crossJoin('sessions')
      .whereRef('sessions.agent_name', '=', 'agent_versions.agent_name')
      .whereRef('sessions.agent_version', '=', 'agent_versions.version')
      .selectAll('sessions')
      .where(isDue)
      .where('sessions.type', 'in', SHOWN_SESSIONS)
      .where((eb) =>
        eb.not(
          eb.exists(
            eb.selectFrom('agents').select('agents.name').whereRef('agents.name', '=', 'agent_versions.agent_name'),
          ),
        ),
      )
      .limit(limit)
      .execute();
    return [...drafts, ...ofAgents, ...ofDeletedAgents].slice(0, limit);
  }
}
