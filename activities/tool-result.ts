import type { BlobStore } from '../src/blobs/blob-store.ts';
import type { StoredFile, ToolResponse } from '../src/log/records.ts';
import { clip } from '../src/log/text.ts';
import type { ResultFile } from '../src/tools/results.ts';
import { fileUrl } from '../src/wire/project.ts';

/** A result of more JSON bytes than this is cut: one event of 1 MiB breaks the Python client. */
const MAX_RESULT_BYTES = 256 * 1024;

/** Files above this are kept in the blob store, and sent to clients by URL. */
export const MAX_INLINE_FILE_BYTES = 64 * 1024;

/** Puts a tool's result into the form in which the log keeps it; what is large goes to the blob store. */
export async function keepResult(
  { text, files }: { text: string; files: ResultFile[] },
  { blobs, sessionId }: { blobs: BlobStore; sessionId: string },
): Promise<Pick<ToolResponse, 'content' | 'files'>> {
  const kept = await Promise.all(files.map((file) => keepFile(file, { blobs, sessionId })));
  let content = clip(text, MAX_RESULT_BYTES, () => '');
  if (content !== text) {
    const bytes = Buffer.from(text);
    const whole = { name: 'result.txt', mimeType: 'text/plain', bytes: bytes.length };
    const blob = await blobs.put(sessionId, bytes);
    kept.push({ type: 'file', ...whole, blob });
    const url = fileUrl({ ...whole, blob }, sessionId);
    content = clip(
      text,
      MAX_RESULT_BYTES,
      (omitted) => `[${omitted} characters left out; the whole result: GET ${url}]`,
    );
  }
  return { content, ...(kept.length > 0 && { files: kept }) };
}

/** Keeps a file inside its record if it is small, else in the blob store. */
export async function keepFile(
  { name, mimeType, base64 }: ResultFile,
  { blobs, sessionId }: { blobs: BlobStore; sessionId: string },
): Promise<StoredFile> {
  const content = Buffer.from(base64, 'base64');
  const file = { type: 'file' as const, name, mimeType, bytes: content.length };
  if (content.length <= MAX_INLINE_FILE_BYTES) return { ...file, base64 };
  return { ...file, blob: await blobs.put(sessionId, content) };
}
