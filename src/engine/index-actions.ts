import type { Logger } from 'pino';
import type { Metrics } from '../telemetry/metrics.ts';
import { actionChanges } from './action-changes.ts';
import { archiveEarlier, indexed } from './archive-turn.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { TurnIndex } from './turn-index.ts';
import type { TurnLogReader } from './turn-log-reader.ts';

interface IndexOptions {
  catalog: Catalog;
  logs: TurnLogReader;
  turnIndex: TurnIndex;
  metrics: Metrics;
  log: Pick<Logger, 'warn'>;
  turnId: string;
  /** The last entry to index. */
  through: number;
  signal: AbortSignal;
}

/**
 * Brings the index of actions up to an entry of a running turn, whose log is archived only later, and tells how the
 * state of its session has changed. May be repeated.
 * @throws TurnNotFound
 */
export async function indexActions(options: IndexOptions): Promise<void> {
  const { catalog, logs, turnId, through, signal } = options;
  const turn = await indexed(await catalog.turns.get(turnId), options);
  if (!turn) return;
  await archiveEarlier(turn, options);
  const from = turn.indexed_through + 1;
  if (from > through) return;
  for await (const { sessionId, entries } of logs.readStored(turnId, { from, follow: signal })) {
    const batch = entries.filter(({ ordinal }) => ordinal <= through);
    const last = batch.at(-1);
    if (!last) continue;
    const changes = await actionChanges(batch, { catalog, logs, sessionId });
    if (!(await catalog.archive.index(turnId, batch, changes)) || last.ordinal === through) return;
  }
}
