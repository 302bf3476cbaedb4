import { shown, WorkspaceFileError } from './workspace-path.ts';

/** Decodes a text; undefined for bytes that are not UTF-8, or contain NUL. A byte order mark is part of the text. */
export function decodeUtf8(bytes: Uint8Array, { isPart = false } = {}): string | undefined {
  if (bytes.includes(0)) return undefined;
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes, { stream: isPart });
  } catch {
    return undefined;
  }
}

/** The text of a file. @throws WorkspaceFileError */
export function textOfFile(path: string, bytes: Uint8Array): string {
  const text = decodeUtf8(bytes);
  if (text !== undefined) return text;
  throw new WorkspaceFileError('unsuitable', `${shown(path)} is not a text in UTF-8: use code or read_media for it`);
}
