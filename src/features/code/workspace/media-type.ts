import { posix } from 'node:path';
import { audioType } from '../../../core/audio-formats.ts';
import { imageTypeOf } from '../../files/file-kind.ts';
import { decodeUtf8 } from './text-content.ts';

/** The types besides images that models accept, by their first bytes as Latin-1. */
const MEDIA: readonly (readonly [start: RegExp, type: string])[] = [
  [/^%PDF-/, 'application/pdf'],
  [/^RIFF[^]{4}WAVE/, audioType('wav')],
  [/^(?:ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb])/, audioType('mp3')],
  [/^\xff[\xf0\xf1\xf8\xf9]/, audioType('aac')],
  [/^fLaC/, audioType('flac')],
  [/^OggS[^]{24}OpusHead/, audioType('opus')],
];

/**
 * The media type of a file by its first bytes, since its name is not reliable: a provider rejects an image with a wrong
 * declared type.
 */
export function mediaTypeOf(head: Buffer): { mediaType: string; isMedia: boolean } {
  const start = head.toString('latin1', 0, 64);
  const media = imageTypeOf(head) ?? MEDIA.find(([pattern]) => pattern.test(start))?.[1];
  if (media !== undefined) return { mediaType: media, isMedia: true };
  const isText = decodeUtf8(head, { isPart: true }) !== undefined;
  return { mediaType: isText ? 'text/plain' : 'application/octet-stream', isMedia: false };
}

/** Types by file extension, for lists of clients, which do not read the bytes of files. */
const BY_EXTENSION: Readonly<Record<string, string>> = {
  bmp: 'image/bmp',
  css: 'text/css',
  csv: 'text/csv',
  doc: 'application/msword',
  docx: 'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
  gif: 'image/gif',
  gz: 'application/gzip',
  htm: 'text/html',
  html: 'text/html',
  ipynb: 'application/x-ipynb+json',
  jpeg: 'image/jpeg',
  jpg: 'image/jpeg',
  js: 'text/javascript',
  json: 'application/json',
  jsonl: 'application/jsonl',
  log: 'text/plain',
  md: 'text/markdown',
  mp3: 'audio/mpeg',
  mp4: 'video/mp4',
  parquet: 'application/vnd.apache.parquet',
  pdf: 'application/pdf',
  png: 'image/png',
  pptx: 'application/vnd.openxmlformats-officedocument.presentationml.presentation',
  py: 'text/x-python',
  sql: 'application/sql',
  svg: 'image/svg+xml',
  tar: 'application/x-tar',
  toml: 'application/toml',
  tsv: 'text/tab-separated-values',
  txt: 'text/plain',
  wav: 'audio/wav',
  webp: 'image/webp',
  xls: 'application/vnd.ms-excel',
  xlsx: 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
  xml: 'application/xml',
  yaml: 'application/yaml',
  yml: 'application/yaml',
  zip: 'application/zip',
};

export function mediaTypeByName(name: string): string {
  const extension = posix.extname(name).slice(1).toLowerCase();
  return (Object.hasOwn(BY_EXTENSION, extension) && BY_EXTENSION[extension]) || 'application/octet-stream';
}
