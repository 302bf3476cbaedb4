import type { BlobStore } from './blob-store.ts';

/** The most JSON that one Temporal payload holds, so that histories and their pages stay small enough to read. */
export const MAX_PAYLOAD_BYTES = 128 * 1024;

/** The share of the records in an activity's result; the rest is for its other fields. */
const MAX_RESULT_BYTES = MAX_PAYLOAD_BYTES - 4096;

/**
 * How much of an activity's result stays in the history if its texts can be moved. Temporal terminates a workflow whose
 * history exceeds 50 MB, and a turn can only continue as new between two messages, so the results of one message with
 * hundreds of tool calls must fit.
 */
const INLINE_RESULT_BYTES = 16 * 1024;

/** Smaller strings are not moved: a reference takes a tenth of this, and ids and names must never become references. */
const MIN_OFFLOADED_BYTES = 1024;

/** Replaces a string that is in the blob store. */
interface BlobRef {
  $blob: string;
}

/** A value is too large for Temporal even with all of its large strings in the blob store. */
export class PayloadTooLarge extends Error {
  static {
    this.prototype.name = 'PayloadTooLarge';
  }
}

/**
 * Whether storing a value may succeed on a retry: true for every failure of the store, false if the value is too large.
 */
export function isRetryableStoreError(error: unknown): boolean {
  return !(error instanceof PayloadTooLarge);
}

/** A string in a value, and the object or array that holds it. */
interface StringSlot {
  holder: Record<string | number, unknown>;
  key: string | number;
  text: string;
  bytes: number;
}

interface OffloadOptions {
  blobs: BlobStore;
  sessionId: string;
  /** The maximum size of the result. */
  maxBytes?: number;
  /** The target size: strings are moved until the result has it, or until none is left to move. */
  inlineBytes?: number;
}

/**
 * Makes `value` (plain JSON) fit into `maxBytes`, and into `inlineBytes` if possible, by moving its largest strings
 * into the blob store, largest first. The result has the type of the value, but moved strings are references until
 * `restore` replaces them.
 * @throws PayloadTooLarge
 */
export async function offload<T>(
  value: T,
  { blobs, sessionId, maxBytes = MAX_PAYLOAD_BYTES, inlineBytes = maxBytes }: OffloadOptions,
): Promise<T> {
  let bytes = Buffer.byteLength(JSON.stringify(value));
  if (bytes <= inlineBytes) return value;
  const root = { value: structuredClone(value) };
  const moves: StringSlot[] = [];
  for (const slot of stringsOf(root).sort((a, b) => b.bytes - a.bytes)) {
    if (bytes <= inlineBytes) break;
    bytes -= slot.bytes - REF_BYTES;
    moves.push(slot);
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

/** Moves a text into the blob store, whatever its size. The result is a reference until `restore` replaces it. */
export async function offloadText(
  text: string,
  { blobs, sessionId }: Pick<OffloadOptions, 'blobs' | 'sessionId'>,
): Promise<string> {
  const ref: BlobRef = { $blob: await blobs.put(sessionId, Buffer.from(text.toWellFormed())) };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as in the results of `offload`
  return ref as unknown as string;
}

const REF_BYTES = JSON.stringify({ $blob: '0'.repeat(64) } satisfies BlobRef).length;

/** Replaces the references of `offload` by their strings. Returns the value itself if it has none. */
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

function stringsOf(node: unknown): StringSlot[] {
  const slots: StringSlot[] = [];
  walk(node, (holder, key, text) => {
    if (typeof text !== 'string' || text.length < MIN_OFFLOADED_BYTES / 4) return;
    const bytes = Buffer.byteLength(JSON.stringify(text));
    if (bytes >= MIN_OFFLOADED_BYTES) slots.push({ holder, key, text, bytes });
  });
  return slots;
}

function refsOf(node: unknown): { holder: StringSlot['holder']; key: StringSlot['key']; blob: string }[] {
  const refs: ReturnType<typeof refsOf> = [];
  walk(node, (holder, key, value) => {
    if (isBlobRef(value)) refs.push({ holder, key, blob: value.$blob });
  });
  return refs;
}

function isBlobRef(value: unknown): value is BlobRef {
  return typeof value === 'object' && value !== null && '$blob' in value && typeof value.$blob === 'string';
}

function walk(
  node: unknown,
  visit: (holder: StringSlot['holder'], key: StringSlot['key'], value: unknown) => void,
): void {
  const open: unknown[] = [node];
  for (let holder = open.pop(); holder !== undefined; holder = open.pop()) {
    if (!isHolder(holder)) continue;
    for (const [key, value] of Object.entries(holder)) {
      visit(holder, key, value);
      if (isHolder(value)) open.push(value);
    }
  }
}

function isHolder(value: unknown): value is StringSlot['holder'] {
  return typeof value === 'object' && value !== null;
}
