import type { StoredFile } from './records/input.ts';

/** The types that every provider takes as images. */
const IMAGE_TYPES: ReadonlySet<string> = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);

export function isImage({ mimeType }: Pick<StoredFile, 'mimeType'>): boolean {
  return IMAGE_TYPES.has(mimeType);
}

/** The description of a file in a text for a model. */
export function describeFile({ name, mimeType, bytes }: Pick<StoredFile, 'name' | 'mimeType' | 'bytes'>): string {
  return `${name} (${mimeType}, ${sizeText(bytes)})`;
}

/** The placeholder for a file whose content is lost. */
export function lostFile({ name }: Pick<StoredFile, 'name'>): string {
  return `[${name} is lost: the blob store of the server no longer has it.]`;
}

export function sizeText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${Math.round(bytes / 1024)} KB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}
