import type { ExpressionBuilder, Selectable } from 'kysely';
import type { Tables } from '../../catalog/schema.ts';
import { addReferences, holdBlobs } from '../../catalog/blob-references.ts';
import { changeRows, Store } from '../../catalog/store.ts';
import { newId } from '../../engine/new-id.ts';
import { endKernels } from './ended-kernels.ts';
import { HOST_LOST_MS } from './kernel-host-rows.ts';
import type { KernelSnapshot } from './kernel-snapshot.ts';
import './tables.ts';

/** The new files of a workspace, and those that they replace. */
interface ChangedWorkspace {
  sessionId: string;
  /** The files in the row. */
  previous: string | null;
  workspace: string;
}

export type SandboxRow = Selectable<Tables['sandboxes']>;

/** The resets of clients. */
type SandboxResets = Pick<SandboxRow, 'resets' | 'reset_ids'>;

type OpenedSandbox = Pick<SandboxRow, 'session_id' | 'id' | 'host' | 'isolation' | 'opened_by'>;

/** The sandboxes of sessions. Each is on one host, until the host is lost. */
export class Sandboxes extends Store {
  async get(sessionId: string): Promise<SandboxRow | undefined> {
    return this.db.selectFrom('sandboxes').selectAll().where('session_id', '=', sessionId).executeTakeFirst();
  }

  async find(id: string): Promise<SandboxRow | undefined> {
    return this.db.selectFrom('sandboxes').selectAll().where('id', '=', id).executeTakeFirst();
  }

  /** Whether there is any sandbox, so that a host is needed even if no code was called since the start. */
  async isAny(): Promise<boolean> {
    return (await this.db.selectFrom('sandboxes').select('session_id').limit(1).executeTakeFirst()) !== undefined;
  }

  /** The sessions whose sandboxes are on a host. */
  async on(host: string): Promise<Set<string>> {
    const rows = await this.db.selectFrom('sandboxes').select('session_id').where('host', '=', host).execute();
    return new Set(rows.map(({ session_id: id }) => id));
  }

  /**
   * The sandbox of a session. If there is none, or its host is lost, it is assigned to this host.
   * @param sandbox the row for a new sandbox
   * @param now milliseconds since 1970
   */
  async open(sandbox: OpenedSandbox, now: number): Promise<SandboxRow> {
    const { session_id: sessionId, host, isolation } = sandbox;
    const created = await this.create(sandbox, now);
    await this.db
      .updateTable('sandboxes')
      .set((eb) => {
        // Behind another wall, the event of its creation is repeated.
        const openedBy = eb
          .case()
          .when(eb.and([eb('isolation', '=', isolation), eb('opened_by', '!=', '')]))
          .then(eb.ref('opened_by'))
          .else(sandbox.opened_by)
          .end();
        // Resets are kept, since stored variables outlast a host.
        return { host, isolation, opened_by: openedBy, calls: 0, kernels: null };
      })
      .where('session_id', '=', sessionId)
      .where('host', '!=', host)
      .where((eb) => eb.not(hasHost(eb, now, ['ready', 'building', 'failed'])))
      .execute();
    return (await this.get(sessionId)) ?? created;
  }

  /**
   * The sandbox of a session, created for changes by clients before any call. The host that opens it later sets its
   * isolation.
   */
  async createUnopened(sessionId: string): Promise<SandboxRow> {
    const unopened = { session_id: sessionId, id: newId('sbx'), host: '', isolation: 'none', opened_by: '' } as const;
    const created = await this.create(unopened, Date.now());
    return (await this.get(sessionId)) ?? created;
  }

  /** Creates the sandbox of a session, unless it exists. Returns the row for a new sandbox in either case. */
  async create(sandbox: OpenedSandbox, now: number): Promise<SandboxRow> {
    const nothing = { workspace: null, calls: 0, kernels: null, resets: null, reset_ids: null, snapshots: null };
    const created = { ...sandbox, ...nothing, created_at: new Date(now).toISOString() };
    const insert = this.db.insertInto('sandboxes').values(created);
    await insert.onConflict((conflict) => conflict.column('session_id').doNothing()).execute();
    return created;
  }

  /**
   * Stores the workspace after calls on the host. False if the sandbox is no longer on this host, or the row has other
   * files than `previous`.
   * @param blobs the blobs of the files
   */
  async keep({ host, ...change }: ChangedWorkspace & { host: string }, blobs: string[]): Promise<boolean> {
    return this.#change(change, blobs, (eb) => eb('host', '=', host));
  }

  /**
   * Stores the variables of kernels on the host. False if the sandbox is no longer on this host.
   * @param held the blobs of the threads whose blobs have changed
   */
  async keepSnapshots(
    { sessionId, host, snapshots }: { sessionId: string; host: string; snapshots: KernelSnapshot[] },
    held: ReadonlyMap<string, string[]>,
  ): Promise<boolean> {
    return this.db.transaction().execute(async (db) => {
      const kept = db
        .updateTable('sandboxes')
        .set({ snapshots: JSON.stringify(snapshots) })
        .where('session_id', '=', sessionId)
        .where('host', '=', host);
      if (!(await changeRows(kept))) return false;
      for (const [threadId, blobs] of held) await holdBlobs(db, { sessionId, holder: `kernel ${threadId}` }, blobs);
      return true;
    });
  }

  /**
   * Changes the files of a workspace for a client, unless a call runs that may change them, too.
   * @param now milliseconds since 1970
   * @returns why it was not changed: `running`, or `outdated` if the row has other files than `previous`
   */
  async change(change: ChangedWorkspace, blobs: string[], now: number): Promise<'changed' | 'running' | 'outdated'> {
    const isChanged = await this.#change(change, blobs, (eb) => isAtRest(eb, now));
    if (isChanged) return 'changed';
    const row = await this.get(change.sessionId);
    return row?.workspace === change.previous ? 'running' : 'outdated';
  }

  /**
   * Replaces the pending resets of kernels, unless a call runs.
   * @param previous the row as the caller has read it
   * @param now milliseconds since 1970
   * @returns false if a call runs, or the row has other resets
   */
  async reset(previous: SandboxRow, changed: SandboxResets, now: number): Promise<boolean> {
    const { resets, reset_ids: ids } = previous;
    const reset = this.db
      .updateTable('sandboxes')
      .set(changed)
      .where('session_id', '=', previous.session_id)
      .where('resets', resets === null ? 'is' : '=', resets)
      .where('reset_ids', ids === null ? 'is' : '=', ids)
      .where((eb) => isAtRest(eb, now));
    return changeRows(reset);
  }

  /** Makes the host end the kernels of ended threads. */
  async endKernels(sessionId: string, threads: string[]): Promise<void> {
    await this.db.transaction().execute((db) => endKernels(db, sessionId, threads));
  }

  /** The sessions whose sandboxes on a host have pending resets. */
  async withResets(host: string): Promise<Set<string>> {
    const rows = this.db.selectFrom('sandboxes').select('session_id').where('host', '=', host);
    return new Set((await rows.where('resets', 'is not', null).execute()).map(({ session_id: id }) => id));
  }

  /** Removes resets that the host has performed. */
  async resetsDone({ sessionId, host, resets }: { sessionId: string; host: string; resets: string }): Promise<void> {
    await this.db
      .updateTable('sandboxes')
      .set({ resets: null })
      .where('session_id', '=', sessionId)
      .where('host', '=', host)
      .where('resets', '=', resets)
      .execute();
  }

  /**
   * Records the running calls and kernels. Returns the data from clients; undefined if the sandbox is on another host.
   */
  async note(
    running: Pick<SandboxRow, 'host' | 'calls' | 'kernels'> & { sessionId: string },
  ): Promise<Pick<SandboxRow, 'workspace' | 'resets'> | undefined> {
    const { sessionId, host, calls, kernels } = running;
    return this.db
      .updateTable('sandboxes')
      .set({ calls, kernels })
      .where('session_id', '=', sessionId)
      .where('host', '=', host)
      .returning(['workspace', 'resets'])
      .executeTakeFirst();
  }

  async #change(
    { sessionId, previous, workspace }: ChangedWorkspace,
    blobs: string[],
    isAllowed: (eb: SandboxBuilder) => ReturnType<SandboxBuilder['not']>,
  ): Promise<boolean> {
    return this.db.transaction().execute(async (db) => {
      const changed = db
        .updateTable('sandboxes')
        .set({ workspace })
        .where('session_id', '=', sessionId)
        .where('workspace', previous === null ? 'is' : '=', previous)
        .where(isAllowed);
      const isChanged = await changeRows(changed);
      if (isChanged) await addReferences(db, sessionId, blobs);
      return isChanged;
    });
  }
}

type SandboxBuilder = ExpressionBuilder<Tables, 'sandboxes'>;

/** Whether no call runs in a sandbox that may change its files. */
function isAtRest(eb: SandboxBuilder, now: number) {
  return eb.or([eb('calls', '=', 0), eb.not(hasHost(eb, now, ['ready', 'building', 'failed', 'draining']))]);
}

/** Whether the host of a sandbox runs, in one of these states. */
function hasHost(eb: SandboxBuilder, now: number, states: Tables['kernel_hosts']['state'][]) {
  return eb.exists(
    eb
      .selectFrom('kernel_hosts')
      .select('kernel_hosts.host')
      .whereRef('kernel_hosts.host', '=', 'sandboxes.host')
      .where('seen_at', '>=', new Date(now - HOST_LOST_MS).toISOString())
      .where('state', 'in', states),
  );
}
