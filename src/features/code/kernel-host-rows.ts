import type { Insertable, Selectable } from 'kysely';
import type { Tables } from '../../catalog/schema.ts';
import { Store } from '../../catalog/store.ts';
import './tables.ts';

/** The heartbeat interval of a host. */
export const HOST_SEEN_MS = 3_000;

/** A host without a heartbeat for this time is lost: several were missed, and clocks differ little. */
export const HOST_LOST_MS = 12_000;

/** The rows of lost hosts are kept for a day, for operators. */
const KEPT_MS = 86_400_000;

/** The running kernel hosts. */
export class KernelHosts extends Store {
  async seen(host: Insertable<Tables['kernel_hosts']>): Promise<void> {
    const { host: _, ...rest } = host;
    await this.db
      .insertInto('kernel_hosts')
      .values(host)
      .onConflict((conflict) => conflict.column('host').doUpdateSet(rest))
      .execute();
  }

  async remove(host: string): Promise<void> {
    await this.db.deleteFrom('kernel_hosts').where('host', '=', host).execute();
  }

  /** Deletes the hosts that were lost long ago. @param now milliseconds since 1970 */
  async sweep(now: number): Promise<void> {
    const before = new Date(now - KEPT_MS).toISOString();
    await this.db.deleteFrom('kernel_hosts').where('seen_at', '<', before).execute();
  }

  /** Whether a host is not lost. @param now milliseconds since 1970 */
  async isRunning(host: string, now: number): Promise<boolean> {
    const row = this.db
      .selectFrom('kernel_hosts')
      .select('host')
      .where('host', '=', host)
      .where('seen_at', '>=', new Date(now - HOST_LOST_MS).toISOString());
    return (await row.executeTakeFirst()) !== undefined;
  }

  /** At most 100 hosts that are not lost, by last heartbeat, newest first. @param now milliseconds since 1970 */
  async running(now: number): Promise<Selectable<Tables['kernel_hosts']>[]> {
    return this.db
      .selectFrom('kernel_hosts')
      .selectAll()
      .where('seen_at', '>=', new Date(now - HOST_LOST_MS).toISOString())
      .orderBy('seen_at', 'desc')
      .orderBy('host', 'desc')
      .limit(100)
      .execute();
  }
}
