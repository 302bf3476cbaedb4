import { MEDIA_TYPE } from './bounds.ts';

/** The part of a data URI before the file's bytes; the group is the file's type. */
export const DATA_URI_HEAD = `^data:(${MEDIA_TYPE})(?:;[\\w-]+=[^;,]*)*;base64,`;

const HEAD = new RegExp(`${DATA_URI_HEAD}$`, 'i');

/** For the documentation only: a regular expression with groups cannot be run on 30 MB. */
export const BASE64 = '([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?';

export function isBase64(text: string): boolean {
  return text.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(text);
}

/** The parts of `data:<mime type>;base64,<payload>`, or undefined for a text of another form. */
export function parseDataUri(uri: string): { mimeType: string; base64: string } | undefined {
  const comma = uri.indexOf(',');
  const [, mimeType] = HEAD.exec(uri.slice(0, comma + 1)) ?? [];
  const base64 = uri.slice(comma + 1);
  if (comma < 0 || !mimeType || !isBase64(base64)) return undefined;
  return { mimeType: mimeType.toLowerCase(), base64 };
}
