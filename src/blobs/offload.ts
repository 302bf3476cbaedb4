import type { BlobStore } from './blob-store.ts';

/** One Temporal payload holds at most this much JSON; histories and their pages stay readable. */
export const MAX_PAYLOAD_BYTES = 128 * 1024;

/** Of that for the records of an activity's result; the rest is for what stands beside them. */
const MAX_RESULT_BYTES = MAX_PAYLOAD_BYTES - 4096;

/**
 * How much of an activity's result stays in the history if its texts can be moved. Temporal ends a workflow whose
 * history has 50 MB, and a turn can only continue as new between two messages: the results of one message with
 * hundreds of tool calls must fit.
 */
const INLINE_RESULT_BYTES = 16 * 1024;

/** Strings below this stay where they are: a reference takes a tenth of it, and ids and names are never references. */
const MIN_OFFLOADED_BYTES = 1024;

/** Stands for a string that is in the blob store. */
interface BlobRef {
  $blob: string;
}

/** A value is too large for Temporal even with all of its large strings in the blob store. */
export class PayloadTooLarge extends Error {
  static {
    this.prototype.name = 'PayloadTooLarge';
  }
}

/** Whether a value that could not be kept may be kept a little later: whatever is wrong with the store, it is not the value. */
export function isRetryableStoreError(error: unknown): boolean {
  return !(error instanceof PayloadTooLarge);
}

interface Place {
  holder: Record<string | number, unknown>;
  key: string | number;
  text: string;
  bytes: number;
}

interface OffloadOptions {
  blobs: BlobStore;
  sessionId: string;
  /** What the value may take in all. */
  maxBytes?: number;
  /** What it takes at most while there are strings that can be moved. */
  inlineBytes?: number;
}

/**
 * Makes `value` (plain JSON) fit into `maxBytes`, and into `inlineBytes` if it can, by moving its largest strings into
 * the blob store, largest first. The result has the type of the value, but such strings are references until `restore`
 * has put them back.
 * @throws PayloadTooLarge
 */
export async function offload<T>(
  value: T,
  { blobs, sessionId, maxBytes = MAX_PAYLOAD_BYTES, inlineBytes = maxBytes }: OffloadOptions,
): Promise<T> {
  let bytes = Buffer.byteLength(JSON.stringify(value));
  if (bytes <= inlineBytes) return value;
  const root = { value: structuredClone(value) };
  const moves: Place[] = [];
  for (const place of stringsOf(root).sort((a, b) => b.bytes - a.bytes)) {
    if (bytes <= inlineBytes) break;
    bytes -= place.bytes - REF_BYTES;
    moves.push(place);
  }
  // Before anything is written.
  if (bytes > maxBytes) throw new PayloadTooLarge(`the content is too large: it has too many parts (${bytes} bytes)`);
  await Promise.all(
    moves.map(async ({ holder, key, text }) => {
      const ref: BlobRef = { $blob: await blobs.put(sessionId, Buffer.from(text.toWellFormed())) };
      holder[key] = ref;
    }),
  );
  return root.value;
}

/**
 * Makes the records of an activity's result small enough for the history.
 * @throws PayloadTooLarge
 */
export async function offloadResult<T>(records: T, to: Pick<OffloadOptions, 'blobs' | 'sessionId'>): Promise<T> {
  return offload(records, { ...to, maxBytes: MAX_RESULT_BYTES, inlineBytes: INLINE_RESULT_BYTES });
}

const REF_BYTES = JSON.stringify({ $blob: '0'.repeat(64) } satisfies BlobRef).length;

/** Puts back what `offload` has moved. Gives the value itself if that was nothing. */
export async function restore<T>(value: T, { blobs, sessionId }: { blobs: BlobStore; sessionId: string }): Promise<T> {
  if (!JSON.stringify(value).includes('{"$blob":')) return value;
  const root = { value: structuredClone(value) };
  await Promise.all(
    refsOf(root).map(async ({ holder, key, blob }) => {
      holder[key] = (await blobs.get(sessionId, blob)).toString();
    }),
  );
  return root.value;
}

function stringsOf(node: unknown): Place[] {
  const places: Place[] = [];
  walk(node, (holder, key, text) => {
    if (typeof text !== 'string' || text.length < MIN_OFFLOADED_BYTES / 4) return;
    const bytes = Buffer.byteLength(JSON.stringify(text));
    if (bytes >= MIN_OFFLOADED_BYTES) places.push({ holder, key, text, bytes });
  });
  return places;
}

function refsOf(node: unknown): { holder: Place['holder']; key: Place['key']; blob: string }[] {
  const refs: ReturnType<typeof refsOf> = [];
  walk(node, (holder, key, value) => {
    if (isBlobRef(value)) refs.push({ holder, key, blob: value.$blob });
  });
  return refs;
}

function isBlobRef(value: unknown): value is BlobRef {
  return typeof value === 'object' && value !== null && '$blob' in value && typeof value.$blob === 'string';
}

function walk(node: unknown, visit: (holder: Place['holder'], key: Place['key'], value: unknown) => void): void {
  const open: unknown[] = [node];
  for (let holder = open.pop(); holder !== undefined; holder = open.pop()) {
    if (!isHolder(holder)) continue;
    for (const [key, value] of Object.entries(holder)) {
      visit(holder, key, value);
      if (isHolder(value)) open.push(value);
    }
  }
}

function isHolder(value: unknown): value is Place['holder'] {
  return typeof value === 'object' && value !== null;
}
