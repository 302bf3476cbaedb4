import type { BlobTarget } from '../blobs/offload.ts';
import { storeFiles } from '../blobs/store-files.ts';
import type { InputItem, StoredFile } from '../core/records/input.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';

/** Bytes of files that stay inside one input's record: a stream sends them on one line, with all texts of the input. */
const MAX_INLINE_BYTES = 256 * 1024;

/** The input as the log keeps it: its larger files, which arrive inline, are moved into the blob store. */
export async function storeInput(input: InputItem[], { blobs, sessionId }: BlobTarget): Promise<InputItem[]> {
  const files = inputFiles(input);
  const inline = files.flatMap((file) => ('base64' in file ? [file] : []));
  if (inline.length === 0) return input;
  const stored = await storeFiles(inline, { blobs, sessionId, maxInlineBytes: MAX_INLINE_BYTES });
  const replacements = new Map<StoredFile, StoredFile | undefined>(inline.map((file, i) => [file, stored[i]]));
  return withFiles(input, (file) => replacements.get(file) ?? file);
}

/**
 * Writes the files of an input where the agent's code finds them, if it acts in code. A repeated call has the same
 * result. Returns their paths, in order; undefined for one that was not written.
 */
export type PlaceFiles = (
  files: StoredFile[],
  turn: { sessionId: string; spec: AgentSpec },
) => Promise<(string | undefined)[]>;

/** An input whose files have the paths that `PlaceFiles` has returned. */
export function withPaths(input: InputItem[], paths: readonly (string | undefined)[]): InputItem[] {
  const pathOf = new Map(inputFiles(input).map((file, i) => [file, paths[i]]));
  if (paths.every((path) => path === undefined)) return input;
  return withFiles(input, (file) => {
    const path = pathOf.get(file);
    return path === undefined ? file : { ...file, workspacePath: path };
  });
}

function withFiles(input: InputItem[], change: (file: StoredFile) => StoredFile): InputItem[] {
  return input.map((item) => {
    if (item.type !== 'user.message' || typeof item.content === 'string') return item;
    return { ...item, content: item.content.map((part) => (part.type === 'file' ? change(part) : part)) };
  });
}

/** The files of an input, in order. */
export function inputFiles(input: InputItem[]): StoredFile[] {
  return input.flatMap((item) => {
    if (item.type !== 'user.message' || typeof item.content === 'string') return [];
    return item.content.filter((part) => part.type === 'file');
  });
}
