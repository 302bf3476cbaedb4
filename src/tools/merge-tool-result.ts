import type { BlobStore } from '../blobs/blob-store.ts';
import { keepFiles, type FileContent } from '../blobs/store-files.ts';
import type { ToolResponse } from '../core/records.ts';
import { clip } from '../core/text.ts';
import { fileUrl } from '../api/sessions/wire/to-wire.ts';

/** A result of more JSON bytes than this is cut: one event of 1 MiB breaks the Python client. */
const MAX_RESULT_BYTES = 256 * 1024;

/** Files of a result: each takes room in the record, wherever its content is, and all of them no more than this. */
const MAX_FILES = 100;
const MAX_FILES_BYTES = 32 * 1024;
/** Of one, without its name and type, which are ASCII. */
const FILE_BYTES = 150;

/** Content of files in the record itself: half of what stays in the history of a result. */
const MAX_INLINE_BYTES = 8 * 1024;

/** Puts a tool's result into the form in which the log keeps it; what is large goes to the blob store. */
export async function keepResult(
  { text, files }: { text: string; files: FileContent[] },
  { blobs, sessionId }: { blobs: BlobStore; sessionId: string },
): Promise<Pick<ToolResponse, 'content' | 'files'>> {
  const first = firstOf(files);
  const left = files.length - first.length;
  const whole = left > 0 ? `${text}\n[${left} more files of this result were left out]` : text;
  const kept = await keepFiles(first, { blobs, sessionId, maxInlineBytes: MAX_INLINE_BYTES });
  let content = clip(whole, MAX_RESULT_BYTES, () => '');
  if (content !== whole) {
    const bytes = Buffer.from(whole);
    const file = { name: 'result.txt', mimeType: 'text/plain', bytes: bytes.length };
    const blob = await blobs.put(sessionId, bytes);
    kept.push({ type: 'file', ...file, blob });
    const url = fileUrl({ ...file, blob }, sessionId);
    content = clip(
      whole,
      MAX_RESULT_BYTES,
      (omitted) => `[${omitted} characters left out; the whole result: GET ${url}]`,
    );
  }
  return { content, ...(kept.length > 0 && { files: kept }) };
}

/** As many files as a record may have, from the first on. */
function firstOf(files: FileContent[]): FileContent[] {
  let free = MAX_FILES_BYTES;
  const tooMany = files.findIndex(({ name, mimeType }, index) => {
    free -= FILE_BYTES + name.length + mimeType.length;
    return index === MAX_FILES || free < 0;
  });
  return tooMany < 0 ? files : files.slice(0, tooMany);
}
