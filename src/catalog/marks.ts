import { Store } from './store.ts';

/**
 * Named timestamps: up to when recurring work is complete, or when a version last started. In a restored catalog they are
 * as old as its backup.
 */
export class Marks extends Store {
  async get(name: string): Promise<string | undefined> {
    return (await this.db.selectFrom('marks').select('at').where('name', '=', name).executeTakeFirst())?.at;
  }

  /** Raises a mark, unless another process has raised it further. */
  async raise(name: string, at: string): Promise<void> {
    await this.db
      .insertInto('marks')
      .values({ name, at })
      .onConflict((conflict) => conflict.column('name').doUpdateSet({ at }).where('marks.at', '<', at))
      .execute();
  }
}
