import type { Catalog } from './catalog.ts';
import type { TurnRow } from './schema.ts';

const AT_ONCE = 100;

/** All turns of a session, and requests for some; those that are seen may be removed meanwhile. */
export async function* turnsOf({ turns }: Catalog, sessionId: string): AsyncGenerator<TurnRow> {
  let after = '';
  for (;;) {
    const rows = await turns.ofSession(sessionId, after, AT_ONCE);
    yield* rows;
    const last = rows.at(-1);
    if (!last || rows.length < AT_ONCE) return;
    after = last.id;
  }
}
