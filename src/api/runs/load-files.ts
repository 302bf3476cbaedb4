import type { BlobStore } from '../../blobs/blob-store.ts';
import type { LogRecord, StoredFile } from '../../core/records.ts';
import { isMedia } from './output-parts.ts';

/** Whether an item needs files of the record that are in the blob store. */
export function mustLoadFiles(record: LogRecord): boolean {
  return filesOf(record).some(isMissing);
}

/** The record with the content of the files that its item contains. @throws BlobNotFound and errors of the store */
export async function loadFiles<R extends LogRecord>(
  record: R,
  { blobs, sessionId }: { blobs: Pick<BlobStore, 'get'>; sessionId: string },
): Promise<R> {
  if (!mustLoadFiles(record)) return record;
  const files: StoredFile[] = [];
  // One after the other: a result may have a hundred.
  for (const file of filesOf(record)) {
    if (!isMissing(file)) {
      files.push(file);
      continue;
    }
    const { blob, ...rest } = file;
    files.push({ ...rest, base64: (await blobs.get(sessionId, blob)).toString('base64') });
  }
  if (record.kind !== 'model.message') return { ...record, files };
  const { audio, images = [] } = record;
  const spoken = files[images.length];
  return {
    ...record,
    ...(record.images && { images: images.map((image, i) => ({ ...image, file: files[i] ?? image.file })) }),
    ...(audio && spoken && { audio: { ...audio, file: spoken } }),
  };
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
