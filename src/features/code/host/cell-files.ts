import { posix } from 'node:path';
import type { SavedFile } from '../../../core/records/sandbox.ts';
import { errorMessage } from '../../../lib/errors.ts';
import type { CodeActions } from '../../../spec/code-actions.ts';
import { displayFiles, fileStem, notice, previewOf } from './cell-result.ts';
import type { SessionSandbox } from './session-sandbox.ts';
import type { RanCell } from './thread-kernel.ts';

/** Writes the displays of a cell into the workspace. Returns the files, and the reasons why some were not written. */
export async function writeDisplays(
  { end }: RanCell,
  { sandbox, toolCallId }: { sandbox: SessionSandbox; toolCallId: string },
): Promise<{ files: SavedFile[]; notices: string[] }> {
  const written: { files: SavedFile[]; notices: string[] } = { files: [], notices: [] };
  for (const { path, mediaType, data } of 'cell' in end ? displayFiles(end.cell, toolCallId) : []) {
    try {
      written.files.push(savedFile(await sandbox.files.writeNew(path, data), mediaType, data.length));
    } catch (error) {
      written.notices.push(`a display is lost: ${errorMessage(error)}`);
    }
  }
  return written;
}

/** The text of a result for the model. A text that is too long is written into the workspace. */
export async function shownText(
  text: string,
  { sandbox, toolCallId, results }: { sandbox: SessionSandbox; toolCallId: string } & Pick<CodeActions, 'results'>,
): Promise<{ text: string; files: SavedFile[] }> {
  const bytes = Buffer.byteLength(text);
  if (bytes <= results.inline_bytes) return { text, files: [] };
  const { preview_chars: characters } = results;
  try {
    const file = await sandbox.files.writeNew(`.everturn/results/${fileStem(toolCallId)}.txt`, text);
    return { text: previewOf(text, { characters, file }), files: [savedFile(file, 'text/plain', bytes)] };
  } catch (error) {
    const lost = notice(`the rest is lost: ${errorMessage(error)}`);
    return { text: `${previewOf(text, { characters, file: undefined })}\n${lost}`, files: [] };
  }
}

function savedFile(path: string, mediaType: string, bytes: number): SavedFile {
  return { name: posix.basename(path), mediaType, bytes, path };
}
