import type { Entry, ZipFile } from 'yauzl';
import { errorMessage } from '../../lib/errors.ts';
import { decodeText } from './file-kind.ts';
import { runReader, tooLong } from './reader-thread.ts';
import { entryName, openZip } from './zip-entries.ts';

/** A longer entry is listed only. */
const MAX_ENTRY_BYTES = 2 * 1024 * 1024;

/** Reads the list of the entries of a ZIP archive, and the entries that are texts. Nested archives are not opened. */
runReader(async ({ bytes, maxParts, maxUnpackedBytes }, out) => {
  const zip = await openZip(Buffer.from(bytes.buffer));
  const entries: Entry[] = [];
  for await (const entry of zip.eachEntry()) {
    entries.push(entry);
    if (entries.length === maxParts) break;
  }
  const count = zip.entryCount;
  const unlisted = count - entries.length;
  out.begin(`${count} entries`, 'it has no entries');
  const lines = entries.map(describe);
  if (unlisted > 0) lines.push(`and ${unlisted} more, which are neither listed nor read`);
  out.part(lines.join('\n'), `archive with ${count} entries`);
  let remaining = maxUnpackedBytes;
  for (const entry of entries) {
    if (entry.uncompressedSize === 0 || !entry.canDecodeFileData() || entry.uncompressedSize > MAX_ENTRY_BYTES)
      continue;
    if (remaining <= 0) throw tooLong();
    const unpacked = await unpack(zip, entry);
    remaining -= unpacked.bytes;
    if (unpacked.text !== undefined) out.part(unpacked.text, entryName(entry));
  }
});

function describe(entry: Entry): string {
  return `${entryName(entry)} (${entry.uncompressedSize} bytes${entry.isEncrypted() ? ', encrypted' : ''})`;
}

/** Unpacks an entry. Returns the number of bytes, and the text if it is one: other entries are read only in part. */
async function unpack(zip: ZipFile, entry: Entry): Promise<{ bytes: number; text?: string | undefined }> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    // The stream fails if the entry is longer than declared.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- a stream of bytes
    for await (const chunk of (await zip.openReadStreamPromise(entry)) as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes === chunk.length && isBinary(chunk)) return { bytes };
    }
  } catch (error) {
    return { bytes, text: `[it is damaged: ${errorMessage(error)}]` };
  }
  return { bytes, text: decodeText(Buffer.concat(chunks), 'unknown') };
}

/** Whether the beginning of a file shows that it is no text: NUL bytes, without the byte order mark of UTF-16. */
function isBinary(start: Buffer): boolean {
  const [first, second] = start;
  const isUtf16 = (first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff);
  return !isUtf16 && start.includes(0);
}
