import { DecryptionFailed } from '../encryption/cipher.ts';
import { BlobNotFound, BlobTooLarge, type BlobStore } from './blob-store.ts';
import { NamedError } from '../lib/errors.ts';

/** The most JSON that one Temporal payload holds, so that histories and their pages stay small enough to read. */
export const MAX_PAYLOAD_BYTES = 128 * 1024;

/** The share of the records in an activity's result; the rest is for its other fields, such as its attempts. */
const MAX_RESULT_BYTES = MAX_PAYLOAD_BYTES - 12 * 1024;

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
  /** How the blob has the text, if not as UTF-8: that has no unpaired surrogates, which JSON may contain. */
  encoding?: 'utf16le';
}

/**
 * The key of a reference. Values hold JSON from outside, which may have this key as well: `offload` adds a `$` to it, and
 * to those that have some already, and `restore` removes it. In a stored value, the key therefore marks a reference.
 */
const REF_KEY = '$blob';
const ESCAPABLE_KEY = /^\$+blob$/;
const ESCAPED_KEY = /^\$\$+blob$/;

/** In JSON. Inside a string the quotes are escaped. */
const HAS_ESCAPABLE_KEY = /"\$+blob":/;

/** A value is too large for Temporal even with all of its large strings in the blob store. */
export class PayloadTooLarge extends NamedError {}

/** An object or array, as the holder of values. */
type Holder = Record<string | number, unknown>;

/** A string in a value. */
interface StringSlot {
  holder: Holder;
  key: string | number;
  text: string;
  bytes: number;
}

export interface BlobTarget {
  blobs: BlobStore;
  sessionId: string;
}

interface OffloadOptions extends BlobTarget {
  /** The maximum size of the result. */
  maxBytes?: number;
  /** The target size: strings are moved until the result has it, or until none is left to move. */
  inlineBytes?: number;
}

/**
 * Makes `value` (plain JSON) fit into `maxBytes`, and into `inlineBytes` if possible, by moving its largest strings
 * into the blob store, largest first. The result has the type of the value, but is to be read through `restore` only:
 * moved strings are references, and some keys are escaped. What was offloaded must not be offloaded again.
 * @throws PayloadTooLarge
 */
export async function offload<T>(
  value: T,
  { blobs, sessionId, maxBytes = MAX_PAYLOAD_BYTES, inlineBytes = maxBytes }: OffloadOptions,
): Promise<T> {
  const json = JSON.stringify(value);
  if (Buffer.byteLength(json) <= inlineBytes && !HAS_ESCAPABLE_KEY.test(json)) return value;
  const root = { value: copyOf(value, escaped) };
  await moveStrings(root, { blobs, sessionId, maxBytes, inlineBytes });
  return root.value;
}

/** As `offload`, for items that are stored together, and each of which has a target size of its own. */
export async function offloadItems<T>(
  items: T[],
  { inlineBytesOf, ...options }: BlobTarget & { maxBytes: number; inlineBytesOf: (item: T) => number },
): Promise<T[]> {
  const { blobs, sessionId } = options;
  const stored = await Promise.all(
    items.map(async (item) => {
      const root = { value: copyOf(item, escaped) };
      await moveStrings(root, { blobs, sessionId, maxBytes: Infinity, inlineBytes: inlineBytesOf(item) });
      return root.value;
    }),
  );
  const all = { value: stored };
  await moveStrings(all, { ...options, inlineBytes: options.maxBytes });
  return all.value;
}

/**
 * Makes the records of an activity's result small enough for the history.
 * @param results how many results it stands for, each of which could be that of an activity
 * @throws PayloadTooLarge
 */
export async function offloadResult<T>(records: T, to: BlobTarget, results = 1): Promise<T> {
  const inlineBytes = Math.min(results * INLINE_RESULT_BYTES, MAX_RESULT_BYTES);
  return offload(records, { ...to, maxBytes: MAX_RESULT_BYTES, inlineBytes });
}

/** Moves a text into the blob store, whatever its size. The result is a reference until `restore` replaces it. */
export async function offloadText(text: string, to: BlobTarget): Promise<string> {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as in the results of `offload`
  return (await move(text, to)) as unknown as string;
}

interface RestoreOptions extends BlobTarget {
  /** The replacement for a lost text, by the key that it has in its object. Without it, a lost text is an error. */
  lostText?: (key: string) => string;
}

/**
 * The value that was passed to `offload`. Returns the value itself if nothing of it was moved or escaped.
 * @throws BlobNotFound, BlobTooLarge, DecryptionFailed, unless there is a `lostText`; errors of an unavailable store
 */
export async function restore<T>(value: T, { blobs, sessionId, lostText }: RestoreOptions): Promise<T> {
  if (!HAS_ESCAPABLE_KEY.test(JSON.stringify(value))) return value;
  const refs: { holder: Holder; key: string; ref: BlobRef }[] = [];
  const root = copyOf({ value }, unescaped, (holder, key, ref) => refs.push({ holder, key, ref }));
  await Promise.all(
    refs.map(async ({ holder, key, ref }) => {
      const reading = blobs.get(sessionId, ref.$blob);
      const bytes = await (lostText ? unlessLost(reading) : reading);
      holder[key] = bytes ? bytes.toString(ref.encoding) : lostText?.(key);
    }),
  );
  return root.value;
}

/** The result of reading a blob; undefined if its content is lost. @throws errors of an unavailable store */
export async function unlessLost<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    const isLost = [BlobNotFound, BlobTooLarge, DecryptionFailed].some((type) => error instanceof type);
    if (isLost) return undefined;
    throw error;
  }
}

/** Moves the largest strings of a value, in place. @throws PayloadTooLarge before anything is written */
async function moveStrings(
  root: { value: unknown },
  { maxBytes, inlineBytes, ...to }: BlobTarget & { maxBytes: number; inlineBytes: number },
): Promise<void> {
  let bytes = Buffer.byteLength(JSON.stringify(root.value));
  const moves: StringSlot[] = [];
  for (const slot of stringsOf(root).sort((a, b) => b.bytes - a.bytes)) {
    if (bytes <= inlineBytes) break;
    bytes -= slot.bytes - REF_BYTES;
    moves.push(slot);
  }
  if (bytes > maxBytes) throw new PayloadTooLarge(`the content is too large: it has too many parts (${bytes} bytes)`);
  await Promise.all(
    moves.map(async ({ holder, key, text }) => {
      holder[key] = await move(text, to);
    }),
  );
}

async function move(text: string, { blobs, sessionId }: BlobTarget): Promise<BlobRef> {
  const encoding = text.isWellFormed() ? undefined : 'utf16le';
  return { $blob: await blobs.put(sessionId, Buffer.from(text, encoding)), ...(encoding && { encoding }) };
}

const REF_BYTES = JSON.stringify({ $blob: '0'.repeat(64), encoding: 'utf16le' } satisfies BlobRef).length;

/**
 * A deep copy with other keys. With `onRef`, references are not renamed: it is called with their positions in the copy.
 * Not recursive, since JSON from outside may be nested deeply.
 */
function copyOf<T>(
  value: T,
  nameOf: (key: string) => string,
  onRef?: (holder: Holder, key: string, ref: BlobRef) => void,
): T {
  const root: { value: unknown } = { value };
  const open: Holder[] = [root];
  for (let holder = open.pop(); holder; holder = open.pop()) {
    for (const [key, inner] of Object.entries(holder)) {
      if (!isHolder(inner)) continue;
      if (onRef && isBlobRef(inner)) {
        onRef(holder, key, inner);
        continue;
      }
      const copy: Holder = Array.isArray(inner)
        ? // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- its keys are indexes
          ([...inner] as unknown as Holder)
        : Object.fromEntries(Object.entries(inner).map(([name, one]) => [nameOf(name), one]));
      holder[key] = copy;
      open.push(copy);
    }
  }
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a copy of the value
  return root.value as T;
}

function escaped(key: string): string {
  return ESCAPABLE_KEY.test(key) ? `$${key}` : key;
}

function unescaped(key: string): string {
  return ESCAPED_KEY.test(key) ? key.slice(1) : key;
}

function stringsOf(root: Holder): StringSlot[] {
  const slots: StringSlot[] = [];
  const open = [root];
  for (let holder = open.pop(); holder; holder = open.pop()) {
    for (const [key, value] of Object.entries(holder)) {
      if (isHolder(value)) open.push(value);
      if (typeof value !== 'string' || value.length < MIN_OFFLOADED_BYTES / 4) continue;
      const bytes = Buffer.byteLength(JSON.stringify(value));
      if (bytes >= MIN_OFFLOADED_BYTES) slots.push({ holder, key, text: value, bytes });
    }
  }
  return slots;
}

function isBlobRef(value: object): value is BlobRef {
  return REF_KEY in value && typeof value.$blob === 'string';
}

function isHolder(value: unknown): value is Holder {
  return typeof value === 'object' && value !== null;
}
