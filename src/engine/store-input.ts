import type { BlobStore } from '../blobs/blob-store.ts';
import { storeFiles } from '../blobs/store-files.ts';
import type { InputItem, StoredFile } from '../core/records/input.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';

/** Bytes of files that stay inside one input's record: a stream sends them on one line, with all texts of the input. */
const MAX_INLINE_BYTES = 256 * 1024;

/** The input as the log keeps it: its larger files, which arrive inline, are moved into the blob store. */
export async function storeInput(
  input: InputItem[],
  { blobs, sessionId }: { blobs: BlobStore; sessionId: string },
): Promise<InputItem[]> {
  const files = inputFiles(input);
  const inline = files.flatMap((file) => ('base64' in file ? [file] : []));
  if (inline.length === 0) return input;
  const stored = await storeFiles(inline, { blobs, sessionId, maxInlineBytes: MAX_INLINE_BYTES });
  const replacements = new Map<StoredFile, StoredFile>();
  for (const [i, file] of stored.entries()) {
    const original = inline[i];
    if (original) replacements.set(original, file);
  }
  return input.map((item) => {
    if (item.type !== 'user.message' || typeof item.content === 'string') return item;
    const content = item.content.map((part) => (part.type === 'file' ? (replacements.get(part) ?? part) : part));
    return { ...item, content };
  });
}

/**
 * Writes the files of an input where the code of the agent finds them, if it acts in code. A repetition of the call has the
 * same result. Returns their paths, in order; undefined for one that was not written.
 */
export type PlaceFiles = (
  files: StoredFile[],
  turn: { sessionId: string; spec: AgentSpec },
) => Promise<(string | undefined)[]>;

/** An input whose files have the paths that `PlaceFiles` has returned. */
export function withPaths(input: InputItem[], paths: readonly (string | undefined)[]): InputItem[] {
  const placed = new Map(inputFiles(input).map((file, i) => [file, paths[i]]));
  if (paths.every((path) => path === undefined)) return input;
  return input.map((item) => {
    if (item.type !== 'user.message' || typeof item.content === 'string') return item;
    const content = item.content.map((part) => {
      const path = part.type === 'file' ? placed.get(part) : undefined;
      return path === undefined ? part : { ...part, workspacePath: path };
    });
    return { ...item, content };
  });
}

/** The files of an input, in order. */
export function inputFiles(input: InputItem[]): StoredFile[] {
  return input.flatMap((item) => {
    if (item.type !== 'user.message' || typeof item.content === 'string') return [];
    return item.content.filter((part) => part.type === 'file');
  });
}
