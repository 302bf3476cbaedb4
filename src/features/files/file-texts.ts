import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import type { BlobStore } from '../../blobs/blob-store.ts';
import { unlessLost } from '../../blobs/offload.ts';
import type { FileText, StoredFile } from '../../core/records/input.ts';
import { extractText } from './extract-text.ts';
import { decodeText, extractionKey, fileKey, imageTypeOf, kindOf, type ExtractedFile } from './file-kind.ts';

/** The maximum number of characters of a file that a model gets at once. */
export const MAX_BEGINNING = 255 * 1024;

const MAX_CACHED_CHARACTERS = 64 * 1024 * 1024;

/** Decoding blocks the event loop for a few milliseconds per megabyte. */
const MAX_TEXT_BYTES = 8 * 1024 * 1024;

/** A text, or its beginning, with the length of the whole text; or the reason why there is none. */
export type ReadText = { text: string; characters: number } | { problem: string };

/** A lost file must not block its session. */
const LOST = { problem: 'the blob store of the server no longer has it' };

interface FileScope {
  sessionId: string;
  signal: AbortSignal;
}

/**
 * The contents of user files for models. The text that is extracted from a file is stored beside it, as a blob of the
 * session.
 */
export class FileTexts {
  readonly #blobs: BlobStore;
  readonly #log: Logger;
  /** By session and file, so that further attempts of a model call do not repeat the extraction. */
  readonly #extracted = new LRUCache<string, FileText>({ max: 1_000 });
  readonly #beginnings = new LRUCache<string, ReadText>({
    maxSize: MAX_CACHED_CHARACTERS,
    sizeCalculation: (read) => 100 + ('text' in read ? read.text.length : 0),
  });
  /** The types of images; empty for bytes that providers do not accept as an image. */
  readonly #imageTypes = new LRUCache<string, string>({ max: 10_000 });

  constructor({ blobs, log }: { blobs: BlobStore; log: Logger }) {
    this.#blobs = blobs;
    this.#log = log;
  }

  /** Extracts the text of a file and stores it. @throws errors of the blob store, or the reason of the signal */
  async extract(
    { file, kind }: ExtractedFile,
    { sessionId, signal }: FileScope,
    milliseconds: number,
  ): Promise<FileText> {
    const key = cacheKey(sessionId, file);
    const known = this.#extracted.get(key);
    if (known) return known;
    const bytes = await this.#bytes(file, sessionId);
    const read = bytes ? await extractText(kind, bytes, signal, { milliseconds }) : LOST;
    const extracted = { file: extractionKey(file), ...(await this.#stored(read, sessionId)) };
    if ('problem' in extracted) this.#log.warn({ sessionId, ...extracted }, 'a file cannot be read');
    this.#extracted.set(key, extracted);
    return extracted;
  }

  /** The beginning of a file's text. `extracted`: its extracted text, if the file is not a text itself. */
  async beginning(file: StoredFile, sessionId: string, extracted: FileText | undefined): Promise<ReadText> {
    const key = cacheKey(sessionId, file);
    const known = this.#beginnings.get(key);
    if (known) return known;
    const read = await this.whole(file, sessionId, extracted);
    const beginning = 'problem' in read ? read : { ...read, text: copyOf(read.text.slice(0, MAX_BEGINNING)) };
    this.#beginnings.set(key, beginning);
    return beginning;
  }

  /** The whole text of a file. */
  async whole(file: StoredFile, sessionId: string, extracted: FileText | undefined): Promise<ReadText> {
    if (extracted && 'problem' in extracted) return extracted;
    if (extracted) {
      const text = (await this.#get(sessionId, extracted.blob))?.toString();
      return text === undefined ? LOST : { text, characters: text.length };
    }
    const kind = kindOf(file);
    if (kind !== 'text' && kind !== 'unknown') return { problem: 'files of this type cannot be read' };
    if (file.bytes > MAX_TEXT_BYTES) return { problem: `it is larger than ${MAX_TEXT_BYTES / 1024 / 1024} MB` };
    const bytes = await this.#bytes(file, sessionId);
    if (!bytes) return LOST;
    const text = decodeText(bytes, kind);
    return text === undefined ? { problem: 'it is not a text' } : { text, characters: text.length };
  }

  /** The type of an image by its bytes. */
  async image(file: StoredFile, sessionId: string): Promise<{ mimeType: string } | { problem: string }> {
    const key = cacheKey(sessionId, file);
    let mimeType = this.#imageTypes.get(key);
    if (mimeType === undefined) {
      const bytes = await this.#bytes(file, sessionId);
      if (!bytes) return LOST;
      mimeType = imageTypeOf(bytes) ?? '';
    }
    this.#imageTypes.set(key, mimeType);
    return mimeType ? { mimeType } : { problem: 'it is not a PNG, JPEG, GIF or WebP image' };
  }

  /** The bytes of a file; undefined if they are lost. */
  async #bytes(file: StoredFile, sessionId: string): Promise<Buffer | undefined> {
    return 'base64' in file ? Buffer.from(file.base64, 'base64') : this.#get(sessionId, file.blob);
  }

  #get(sessionId: string, blob: string): Promise<Buffer | undefined> {
    return unlessLost(this.#blobs.get(sessionId, blob));
  }

  async #stored(
    read: { text: string } | { problem: string },
    sessionId: string,
  ): Promise<{ blob: string } | { problem: string }> {
    return 'problem' in read ? read : { blob: await this.#blobs.put(sessionId, Buffer.from(read.text)) };
  }
}

/** A slice of a string keeps the whole string in memory. */
function copyOf(slice: string): string {
  return Buffer.from(slice, 'utf16le').toString('utf16le');
}

function cacheKey(sessionId: string, file: StoredFile): string {
  return `${sessionId}/${file.mimeType}/${fileKey(file)}`;
}
