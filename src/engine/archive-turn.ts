import type { Catalog } from '../catalog/catalog.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { TurnIndex } from './turn-index.ts';
import type { TurnLogReader } from './turn-log-reader.ts';

interface ArchiveOptions {
  catalog: Catalog;
  logs: TurnLogReader;
  turnIndex: TurnIndex;
  metrics: Metrics;
  turnId: string;
  /** The last entry to archive; without it, all of them, which waits for the turn to close. */
  through?: number | undefined;
  signal: AbortSignal;
}

/**
 * Copies a turn's log into the archive. Goes on where an earlier attempt stopped; a turn that is archived is left alone,
 * and one whose session was deleted too. Gives whether there was something to copy.
 * @throws TurnNotFound
 */
export async function archive({
  catalog,
  logs,
  turnIndex,
  metrics,
  turnId,
  through,
  signal,
}: ArchiveOptions): Promise<boolean> {
  const known = await catalog.turns.get(turnId);
  if (known?.archived || (through !== undefined && (known?.archived_through ?? 0) >= through)) return false;
  // Whoever started the turn may have died before it was entered in the index.
  if (known?.sequence === undefined || known.sequence === null) {
    if (!(await turnIndex.accept(await logs.start(turnId)))) return false;
  }
  let isCopied = false;
  const from = (known?.archived_through ?? 0) + 1;
  for await (const { entries } of logs.readStored(turnId, { from, follow: signal })) {
    const wanted = through === undefined ? entries : entries.filter(({ ordinal }) => ordinal <= through);
    const last = wanted.at(-1);
    const added = await catalog.archive.add(turnId, wanted, last?.record.kind === 'turn.done');
    if (!added) return false;
    // Others may archive it too; each entry counts where it was added.
    isCopied ||= added.length > 0;
    metrics.archived(added.map(({ record }) => record));
    if (through !== undefined && (wanted.length < entries.length || last?.ordinal === through)) break;
  }
  return isCopied;
}
