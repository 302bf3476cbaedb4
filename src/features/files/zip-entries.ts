import { fromBufferPromise, getFileNameLowLevel, type Entry, type ZipFile } from 'yauzl';
import type { ReaderTask } from './extract-text.ts';
import { Unreadable } from './reader-thread.ts';

/** Opens an archive. Its names stay raw: they are shown, and never used as paths, so any name is allowed. */
export function openZip(buffer: Buffer): Promise<ZipFile> {
  return fromBufferPromise(buffer, { decodeStrings: false });
}

/** The name of an entry on one line. */
export function entryName({ generalPurposeBitFlag, fileNameRaw, extraFields }: Entry): string {
  return getFileNameLowLevel(generalPurposeBitFlag, fileNameRaw, extraFields, true).replaceAll(/\p{Cc}/gu, '?');
}

/**
 * Checks the declared size of an archive before a library unpacks it in memory.
 * @throws Unreadable
 */
export async function checkSizes(
  zip: ZipFile,
  { maxParts, maxUnpackedBytes }: Pick<ReaderTask, 'maxParts' | 'maxUnpackedBytes'>,
): Promise<void> {
  if (zip.entryCount > maxParts) throw new Unreadable(`it consists of more than ${maxParts} files`);
  let bytes = 0;
  for await (const entry of zip.eachEntry()) bytes += entry.uncompressedSize;
  if (bytes > maxUnpackedBytes) throw new Unreadable(`it is larger than ${maxUnpackedBytes / 1024 / 1024} MB unpacked`);
}
