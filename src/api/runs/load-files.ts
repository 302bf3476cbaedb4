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
 * The record with the content of the files that its item contains. A lost file is left out; a result mentions it.
 * @throws errors of a store that is unavailable
 */
export async function loadFiles<R extends LogRecord>(
  record: R,
  { blobs, sessionId }: { blobs: Pick<BlobStore, 'get'>; sessionId: string },
): Promise<R> {
  if (!mustLoadFiles(record)) return record;
  const lost: string[] = [];
  const load = async (file: StoredFile): Promise<StoredFile | undefined> => {
    if (!isMissing(file)) return file;
    const { blob, ...known } = file;
    const bytes = await unlessLost(blobs.get(sessionId, blob));
    if (bytes) return { ...known, base64: bytes.toString('base64') };
    lost.push(lostFile(file));
    return undefined;
  };
  // One after the other: a result may have a hundred.
  if (record.kind === 'tool.response') {
    const files: StoredFile[] = [];
    for (const stored of record.files ?? []) {
      const file = await load(stored);
      if (file) files.push(file);
    }
    return { ...record, content: [record.content, ...lost].join('\n'), files };
  }
  if (record.kind !== 'model.message') return record;
  const { audio, images, ...message } = record;
  const drawn: MadeImage[] = [];
  for (const image of images ?? []) {
    const file = await load(image.file);
    if (file) drawn.push({ ...image, file });
  }
  const spoken = audio && (await load(audio.file));
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a message, as the record is
  return {
    ...message,
    ...(images && { images: drawn }),
    ...(audio && (spoken ? { audio: { ...audio, file: spoken } } : { content: record.content + audio.transcript })),
  } as R;
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
