import { restore } from '../blobs/offload.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { OnceLog } from '../lib/once-log.ts';
import type { LogEntry } from '../core/records/log.ts';
import type { Elicitation } from '../core/records/pending.ts';

/** The placeholder for a text of a record whose blob is lost. */
export const LOST_TEXT = '[This text is lost: the blob store of the server no longer has it.]';

const LOST_QUESTION: Elicitation = {
  mode: 'form',
  message: LOST_TEXT,
  requestedSchema: { type: 'object', properties: {} },
};

/** The placeholders for texts that are JSON, by their fields. */
const LOST_JSON = new Map<string, string>([
  ['arguments', JSON.stringify({ lost: LOST_TEXT })],
  ['question', JSON.stringify(LOST_QUESTION)],
  ['sections', '[]'],
  ['tools', '[]'],
]);

/** Where the texts of a turn's records are, and the log for lost ones. */
interface Source {
  blobs: BlobStore;
  losses: OnceLog;
  sessionId: string;
  turnId: string;
}

/**
 * A record with all of its texts. A lost text is replaced by a placeholder, since one blob must not make the log
 * unreadable, and with it the session. For each record with a lost text, one line is logged.
 * @throws EncryptionKeyMissing, since the text is not lost; errors of a blob store that is unavailable
 */
export async function restoreRecord<T>(record: T, { recordId, ...source }: Source & { recordId: string }): Promise<T> {
  const { blobs, losses, sessionId, turnId } = source;
  let isComplete = true;
  const lostText = (key: string): string => {
    isComplete = false;
    return LOST_JSON.get(key) ?? LOST_TEXT;
  };
  const restored = await restore(record, { blobs, sessionId, lostText });
  if (isComplete) return restored;
  losses.warn(recordId, { sessionId, turnId, recordId }, 'a text of a record is lost: a placeholder stands for it');
  dropDamaged(restored);
  return restored;
}

/** As `restoreRecord`, for several entries. */
export async function restoreEntries(entries: LogEntry[], source: Source): Promise<LogEntry[]> {
  return Promise.all(entries.map((entry) => restoreRecord(entry, { ...source, recordId: entry.record.id })));
}

/** Removes, in place, fields that are useless with a lost text: a provider rejects fields that are not its own. */
function dropDamaged(node: unknown): void {
  if (typeof node !== 'object' || node === null) return;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an object or array of JSON
  const holder = node as Record<string, unknown>;
  if (JSON.stringify(holder['providerFields'] ?? null).includes(LOST_TEXT)) delete holder['providerFields'];
  // The answer no longer fits its schema.
  if (holder['content'] === LOST_TEXT) delete holder['structured'];
  for (const [key, value] of Object.entries(holder)) if (key !== 'providerFields') dropDamaged(value);
}
