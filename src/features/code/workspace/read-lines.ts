import { withoutOpenEnd } from '../kernel/masked-output.ts';
import { textOfFile } from './text-content.ts';
import { chunksOf, type WorkspaceFiles } from './workspace-files.ts';
import { shown, WorkspaceFileError } from './workspace-path.ts';

const NEWLINE = 0x0a;

/** The bound of a result. */
const MAX_TEXT_BYTES = 256 * 1024;

/** How far a file is scanned for the lines, in less than a second. */
const MAX_SCANNED_BYTES = 256 * 1024 * 1024;

interface LineRange {
  /** The first line, from 1. */
  offset: number;
  /** The number of lines; default: all. */
  limit?: number | undefined;
  /** Values; a text that is only a part of its file does not end with the beginning of one of them. */
  hidden?: readonly string[] | undefined;
}

/**
 * Reads lines of a text, which may have any size. A note follows if not all of them fit.
 * @throws WorkspaceFileError
 */
export async function readLines(files: Pick<WorkspaceFiles, 'read'>, path: string, range: LineRange): Promise<string> {
  const { offset, hidden = [] } = range;
  const { found, isEnd } = await findLines(files, path, range);
  const { bytes, isCut } = cut(found);
  const read = textOfFile(path, bytes).replace(/^\uFEFF/, '');
  const text = isCut || !isEnd ? withoutOpenEnd(read, hidden) : read;
  if (!isCut) return text;
  const lines = count(bytes);
  const note =
    lines === 0
      ? `line ${offset} has more than ${MAX_TEXT_BYTES} bytes; use code for its rest`
      : `these are the lines ${offset} to ${offset + lines - 1}; continue with offset ${offset + lines}`;
  return `${text.replace(/\n$/, '')}\n[everturn] cut: ${note}`;
}

/** The bytes of the lines, or more of them than fit into a result. `isEnd`: they reach the end of the file. */
function findLines(
  files: Pick<WorkspaceFiles, 'read'>,
  path: string,
  { offset, limit = Infinity }: LineRange,
): Promise<{ found: Buffer; isEnd: boolean }> {
  return files.read(path, async (file) => {
    const parts: Buffer[] = [];
    let bytes = 0;
    let read = 0;
    let toSkip = offset - 1;
    let toTake = limit;
    let lastByte = NEWLINE;
    for await (const chunk of chunksOf(file, MAX_SCANNED_BYTES)) {
      let at = 0;
      for (; at < chunk.length && toSkip > 0; at += 1) if (chunk[at] === NEWLINE) toSkip -= 1;
      const from = at;
      for (; at < chunk.length && toTake > 0; at += 1) if (chunk[at] === NEWLINE) toTake -= 1;
      parts.push(chunk.subarray(from, at));
      bytes += at - from;
      read += chunk.length;
      if (toTake === 0 || bytes > MAX_TEXT_BYTES) {
        return { found: Buffer.concat(parts), isEnd: at === chunk.length && read >= file.stats.size };
      }
      lastByte = chunk.at(-1) ?? NEWLINE;
    }
    if (file.stats.size > MAX_SCANNED_BYTES) {
      throw new WorkspaceFileError(
        'unsuitable',
        `line ${offset} of ${shown(path)} is not within its first ${MAX_SCANNED_BYTES} bytes: use code for it`,
      );
    }
    if (offset > 1 && bytes === 0) {
      const lines = offset - 1 - toSkip + (lastByte === NEWLINE ? 0 : 1);
      throw new WorkspaceFileError('unsuitable', `${shown(path)} has ${lines} lines: offset is behind its end`);
    }
    return { found: Buffer.concat(parts), isEnd: true };
  });
}

/** Cuts to the whole lines that fit, else to the beginning of the first one. */
function cut(bytes: Buffer): { bytes: Buffer; isCut: boolean } {
  if (bytes.length <= MAX_TEXT_BYTES) return { bytes, isCut: false };
  let end = bytes.lastIndexOf(NEWLINE, MAX_TEXT_BYTES - 1) + 1;
  if (end === 0) {
    end = MAX_TEXT_BYTES;
    // Not within a character.
    while (end > MAX_TEXT_BYTES - 4 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  }
  return { bytes: bytes.subarray(0, end), isCut: true };
}

function count(bytes: Buffer): number {
  let ends = 0;
  for (const byte of bytes) if (byte === NEWLINE) ends += 1;
  return ends;
}
