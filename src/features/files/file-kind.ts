import { isUtf8 } from 'node:buffer';
import type { StoredFile } from '../../core/records/input.ts';
import { sha256 } from '../../lib/hash.ts';

/**
 * The form in which the model gets a file: an image, its text, extracted text, or only the name. A file of `unknown`
 * type is a text if its bytes are valid text: clients often send source code without a type.
 */
type FileKind = 'image' | 'text' | ExtractedKind | 'unknown' | 'other';

/** The kinds of files from which a thread extracts a text. */
export type ExtractedKind = 'pdf' | 'docx' | 'zip';

/** A file whose text is extracted. */
export interface ExtractedFile {
  file: StoredFile;
  kind: ExtractedKind;
}

const EXTRACTED: Record<string, ExtractedKind> = {
  'application/pdf': 'pdf',
  'application/vnd.openxmlformats-officedocument.wordprocessingml.document': 'docx',
  'application/zip': 'zip',
  // Browsers on Windows send this type.
  'application/x-zip-compressed': 'zip',
};

const TEXT_TYPE =
  /^(?:text\/.+|.+\+(?:json|xml|yaml)|(?:application|image)\/(?:(?:x-)?(?:json|ndjson|jsonl|json5|xml|yaml|toml|csv|sql|sh|shellscript|javascript|typescript|ecmascript|python|perl|php|httpd-php|ruby|tex|latex|graphql|rtf)))$/;

export function kindOf(file: Pick<StoredFile, 'mimeType'>): FileKind {
  const extracted = extractedKind(file);
  if (extracted) return extracted;
  if (TEXT_TYPE.test(file.mimeType)) return 'text';
  if (file.mimeType.startsWith('image/')) return 'image';
  return file.mimeType === 'application/octet-stream' ? 'unknown' : 'other';
}

export function extractedKind({ mimeType }: Pick<StoredFile, 'mimeType'>): ExtractedKind | undefined {
  return Object.hasOwn(EXTRACTED, mimeType) ? EXTRACTED[mimeType] : undefined;
}

/** The key of a file's extracted text in its session. The same bytes may be sent as a document and as an archive. */
export function extractionKey(file: StoredFile): string {
  return `${kindOf(file)} ${fileKey(file)}`;
}

/** Identifies a file in its session by its content. */
export function fileKey(file: StoredFile): string {
  return 'blob' in file ? file.blob : sha256(file.base64);
}

/** The id by which a model names a file. It depends on the type, by which the same bytes are read differently. */
export function fileIdOf(file: StoredFile): string {
  return `file_${sha256(`${file.mimeType} ${fileKey(file)}`).slice(0, 8)}`;
}

/**
 * Decodes a text by its byte order mark, else as UTF-8. Other bytes of a file with a text type are read as
 * Windows-1252, in which programs still write tables. Undefined for bytes that are no text.
 */
export function decodeText(bytes: Buffer, kind: 'text' | 'unknown'): string | undefined {
  const [first, second] = bytes;
  if (first === 0xff && second === 0xfe) return clean(new TextDecoder('utf-16le').decode(bytes));
  if (first === 0xfe && second === 0xff) return clean(new TextDecoder('utf-16be').decode(bytes));
  if (bytes.includes(0)) return undefined;
  if (isUtf8(bytes)) return new TextDecoder().decode(bytes);
  return kind === 'text' ? new TextDecoder('windows-1252').decode(bytes) : undefined;
}

/**
 * The type of an image by its first bytes, for the types that every provider takes; undefined for other bytes.
 * Providers reject an image with a wrong declared type, and with it all later requests of the conversation.
 */
export function imageTypeOf(bytes: Buffer): string | undefined {
  const start = bytes.toString('latin1', 0, 12);
  if (start.startsWith('\x89PNG\r\n\x1a\n')) return 'image/png';
  if (start.startsWith('\xff\xd8\xff')) return 'image/jpeg';
  if (/^GIF8[79]a/.test(start)) return 'image/gif';
  return /^RIFF[^]{4}WEBP/.test(start) ? 'image/webp' : undefined;
}

function clean(text: string): string {
  return text.toWellFormed().replaceAll('\0', '');
}
