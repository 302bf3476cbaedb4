import { restore } from '../blobs/offload.ts';
import type { BlobStore } from '../blobs/blob-store.ts';
import type { Elicitation, LogEntry } from '../core/records.ts';

/** Stands for a text of a record whose blob is lost. */
export const LOST_TEXT = '[This text is lost: the blob store of the server no longer has it.]';

const LOST_QUESTION: Elicitation = {
  mode: 'form',
  message: LOST_TEXT,
  requestedSchema: { type: 'object', properties: {} },
};

/** What stands for texts that are JSON, by their fields. */
const LOST_JSON = new Map<string, string>([
  ['arguments', JSON.stringify({ lost: LOST_TEXT })],
  ['question', JSON.stringify(LOST_QUESTION)],
  ['sections', '[]'],
  ['tools', '[]'],
]);

interface Source {
  blobs: BlobStore;
  sessionId: string;
}

/**
 * What a log has, with all of its texts. A text that is lost is replaced by one that says so, since one blob must not make
 * the log unreadable, and with it the session.
 * @throws errors of a blob store that is unavailable
 */
export async function restoreRecord<T>(record: T, { blobs, sessionId }: Source): Promise<T> {
  let isComplete = true;
  const lostText = (key: string): string => {
    isComplete = false;
    return LOST_JSON.get(key) ?? LOST_TEXT;
  };
  const restored = await restore(record, { blobs, sessionId, lostText });
  if (!isComplete) dropDamaged(restored);
  return restored;
}

/** As `restoreRecord`, for several entries. */
export async function restoreEntries(entries: LogEntry[], source: Source): Promise<LogEntry[]> {
  return Promise.all(entries.map((entry) => restoreRecord(entry, source)));
}

/** Removes, in place, what is of no use with a text that is lost: a provider rejects fields that are not its own. */
function dropDamaged(node: unknown): void {
  if (typeof node !== 'object' || node === null) return;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- an object or array of JSON
  const holder = node as Record<string, unknown>;
  if (JSON.stringify(holder['providerFields'] ?? null).includes(LOST_TEXT)) delete holder['providerFields'];
  // The answer no longer fits its schema.
  if (holder['content'] === LOST_TEXT) delete holder['structured'];
  for (const [key, value] of Object.entries(holder)) if (key !== 'providerFields') dropDamaged(value);
}
