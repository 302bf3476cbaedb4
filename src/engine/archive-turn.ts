import type { Logger } from 'pino';
import type { KernelCatalog } from '../catalog/catalog.ts';
import type { LogReading } from '../catalog/log-reader.ts';
import type { TurnRow } from '../catalog/schema.ts';
import type { LogEntry } from '../core/records/log.ts';
import type { TurnError } from '../core/records/turn.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { TurnIndex } from './turn-index.ts';
import type { TurnLogReader } from './turn-log-reader.ts';
import { isUnavailable } from './unavailable.ts';

interface ArchiveOptions {
  catalog: KernelCatalog;
  logs: TurnLogReader;
  turnIndex: TurnIndex;
  metrics: Metrics;
  logReading: LogReading;
  log: Pick<Logger, 'warn'>;
  turnId: string;
  /** The archive has at least the entries up to this one afterwards. Default: all, after the turn has closed. */
  through?: number | undefined;
  signal: AbortSignal;
}

/**
 * Copies a turn's log into the archive, from where an earlier attempt stopped, with all rows that derive from it: the
 * inbox, and the states of the turn, its session and its run. An archived turn, and a turn of a deleted session, are
 * skipped. Returns whether anything was copied.
 * @throws TurnNotFound
 */
export async function archive(options: ArchiveOptions): Promise<boolean> {
  const { catalog, logs, turnIndex, metrics, logReading, log, turnId, through, signal } = options;
  const known = await catalog.turns.get(turnId);
  if (known?.archived) return false;
  const turn = await indexed(known, options);
  if (!turn) return false;
  await archiveEarlier(turn, { catalog, logs, turnIndex, metrics, log, logReading, signal });
  const from = turn.archived_through + 1;
  if (through !== undefined && from > through) return false;
  let isCopied = false;
  for await (const { sessionId, entries, state: after } of logs.readStored(turnId, { from, follow: signal })) {
    const last = entries.at(-1);
    if (!last) continue;
    // Entries of an ended turn from memory have its last state only.
    const state = last.record.kind === 'turn.done' ? 'ended' : (after ?? turn.state ?? 'running');
    const isLast = state === 'ended' || (through !== undefined && last.ordinal >= through);
    const read = await logReading.ofEntries({ turn, entries, last, isLast });
    // Read before the entries are added: nothing may fail after that, or the log line would be lost.
    const session = errorOf(last) ? await catalog.sessions.get(sessionId) : undefined;
    const added = await catalog.archive.add(turnId, entries, { state, ...read });
    if (!added) return false;
    // Other workers may archive the turn too: each entry is counted by the worker that added it.
    isCopied ||= added.length > 0;
    metrics.archived(added.map(({ record }) => record));
    logError(log, added, { turnId, sessionId, agent: session?.agent_name ?? undefined });
    if (isLast) break;
  }
  return isCopied;
}

/** One line for each turn that ends in error, by the worker that has added its end to the archive. */
function logError(
  log: Pick<Logger, 'warn'>,
  added: LogEntry[],
  ids: { turnId: string; sessionId: string; agent: string | undefined },
): void {
  const error = added.map(errorOf).find((one) => one !== undefined);
  if (error) log.warn({ ...ids, code: error.code, message: error.message }, 'a turn ended in error');
}

function errorOf({ record }: LogEntry): TurnError | undefined {
  return record.kind === 'turn.done' && record.end.status === 'error' ? record.end : undefined;
}

/**
 * The row of a turn that runs or has run. The API process may have died before it indexed the turn that it had started:
 * then it is indexed here. Undefined if its session was deleted.
 * @throws TurnNotFound
 */
async function indexed(
  known: TurnRow | undefined,
  { catalog, logs, turnIndex, turnId }: Pick<ArchiveOptions, 'catalog' | 'logs' | 'turnIndex' | 'turnId'>,
): Promise<TurnRow | undefined> {
  if (known?.sequence !== undefined && known.sequence !== null) return known;
  return (await turnIndex.accept(await logs.start(turnId))) ? catalog.turns.get(turnId) : undefined;
}

/**
 * Archives the earlier turns of a session, all of which have ended: their workers may have died before they did, and
 * webhooks get the turns of a session in order. A turn that cannot be read does not block the others, unless it may be
 * readable later: housekeeping retries all of them.
 */
async function archiveEarlier(turn: TurnRow, options: Omit<ArchiveOptions, 'turnId' | 'through'>): Promise<void> {
  const { catalog, logs, turnIndex, signal } = options;
  if (turn.sequence === null) return;
  const tryTo = async (work: () => Promise<unknown>): Promise<void> => {
    try {
      await work();
    } catch (error) {
      if (signal.aborted || isUnavailable(error)) throw error;
    }
  };
  let earlier = await catalog.turns.unarchivedBefore(turn);
  const unknown = earlier.filter(({ sequence }) => sequence === null);
  for (const { id } of unknown) await tryTo(async () => turnIndex.accept(await logs.start(id)));
  if (unknown.length > 0) earlier = await catalog.turns.unarchivedBefore(turn);
  for (const { id, sequence } of earlier) {
    if (sequence !== null) await tryTo(() => archive({ ...options, turnId: id }));
  }
}
