import type { BlobStore } from '../src/blobs/blob-store.ts';
import { keepFiles, type FileContent } from '../src/blobs/keep-files.ts';
import type { ToolResponse } from '../src/log/records.ts';
import { clip } from '../src/log/text.ts';
import { fileUrl } from '../src/wire/project.ts';

/** A result of more JSON bytes than this is cut: one event of 1 MiB breaks the Python client. */
const MAX_RESULT_BYTES = 256 * 1024;

/** Files of a result; each takes some room in the record, wherever its bytes are. */
const MAX_FILES = 100;

const MAX_INLINE_BYTES = 64 * 1024;

/** Puts a tool's result into the form in which the log keeps it; what is large goes to the blob store. */
export async function keepResult(
  { text, files }: { text: string; files: FileContent[] },
  { blobs, sessionId }: { blobs: BlobStore; sessionId: string },
): Promise<Pick<ToolResponse, 'content' | 'files'>> {
  const left = files.length - MAX_FILES;
  const whole = left > 0 ? `${text}\n[${left} more files of this result were left out]` : text;
  const kept = await keepFiles(files.slice(0, MAX_FILES), { blobs, sessionId, maxInlineBytes: MAX_INLINE_BYTES });
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
