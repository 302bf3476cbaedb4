import type { BlobStore } from '../../blobs/blob-store.ts';
import { unlessLost } from '../../blobs/offload.ts';
import { lostFile } from '../../core/files.ts';
import type { StoredFile } from '../../core/records/input.ts';
import type { LogRecord } from '../../core/records/log.ts';
import type { MadeImage } from '../../core/records/message.ts';
import { isMedia } from './output-parts.ts';

/** Whether an item needs files of the record that are in the blob store. */
export function mustLoadFiles(record: LogRecord): boolean {
  return filesOf(record).some(isMissing);
}

/**
 * The record with the content of the files that its item contains. One that is lost is left out, and a result says so.
 * @throws errors of a store that is unavailable
 */
export async function loadFiles<R extends LogRecord>(
  record: R,
  { blobs, sessionId }: { blobs: Pick<BlobStore, 'get'>; sessionId: string },
): Promise<R> {
  if (!mustLoadFiles(record)) return record;
  const loaded = new Map<StoredFile, StoredFile>();
  const lost: string[] = [];
  // One after the other: a result may have a hundred.
  for (const file of filesOf(record)) {
    const content = isMissing(file) ? await contentOf(file, { blobs, sessionId }) : file;
    if (content) loaded.set(file, content);
    else lost.push(lostFile(file));
  }
  const kept = filesOf(record).flatMap((file) => loaded.get(file) ?? []);
  if (record.kind === 'tool.response') {
    return { ...record, content: [record.content, ...lost].join('\n'), files: kept };
  }
  if (record.kind !== 'model.message') return record;
  const { audio, images, ...message } = record;
  const spoken = audio && loaded.get(audio.file);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a message, as the record is
  return {
    ...message,
    ...(images && { images: images.flatMap((image) => fileIn(image, loaded)) }),
    ...(audio && (spoken ? { audio: { ...audio, file: spoken } } : { content: record.content + audio.transcript })),
  } as R;
}

function fileIn(image: MadeImage, loaded: ReadonlyMap<StoredFile, StoredFile>): MadeImage[] {
  const file = loaded.get(image.file);
  return file ? [{ ...image, file }] : [];
}

/** Undefined if it is lost. */
async function contentOf(
  { blob, ...file }: Extract<StoredFile, { blob: string }>,
  { blobs, sessionId }: { blobs: Pick<BlobStore, 'get'>; sessionId: string },
): Promise<StoredFile | undefined> {
  const bytes = await unlessLost(blobs.get(sessionId, blob));
  return bytes && { ...file, base64: bytes.toString('base64') };
}

function filesOf(record: LogRecord): StoredFile[] {
  if (record.kind === 'tool.response') return record.files ?? [];
  if (record.kind !== 'model.message') return [];
  const { audio, images = [] } = record;
  return [...images.map(({ file }) => file), ...(audio ? [audio.file] : [])];
}

function isMissing(file: StoredFile): file is Extract<StoredFile, { blob: string }> {
  return 'blob' in file && isMedia(file);
}
