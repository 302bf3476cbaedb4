/** Measures and cuts texts by their size on the wire: bytes inside a JSON string. */

/** The largest end of a piece of `value` from `from` that takes at most `maxBytes`, never within a surrogate pair. */
export function cutPoint(value: string, from: number, maxBytes: number): number {
  // No UTF-16 unit takes more than 6 bytes in JSON (\u0000), so short strings need no counting.
  if ((value.length - from) * 6 <= maxBytes) return value.length;
  let bytes = 0;
  for (let at = from; at < value.length;) {
    const point = value.codePointAt(at) ?? 0;
    const units = point > 0xffff ? 2 : 1;
    bytes += codePointBytes(point);
    if (bytes > maxBytes && at > from) return at;
    at += units;
  }
  return value.length;
}

const encoder = new TextEncoder();

/** The bytes of `value` inside a JSON string as `JSON.stringify` writes it, in UTF-8. */
export function jsonBytes(value: string): number {
  // In native code, which is faster than a loop. TextEncoder, since workflows have no Buffer.
  return encoder.encode(JSON.stringify(value)).length - 2;
}

/** Characters with short escapes in JSON: \b \t \n \f \r " \ */
const SHORT_ESCAPES = new Set([0x08, 0x09, 0x0a, 0x0c, 0x0d, 0x22, 0x5c]);

function codePointBytes(point: number): number {
  if (SHORT_ESCAPES.has(point)) return 2;
  if (point < 0x20) return 6;
  if (point < 0x80) return 1;
  if (point < 0x800) return 2;
  if (point >= 0xd800 && point <= 0xdfff) return 6; // a lone surrogate is escaped
  return point > 0xffff ? 4 : 3;
}

/**
 * Cuts the middle out of a text that takes more than `maxBytes` in JSON; `note` stands in its place: it gets the number
 * of missing characters, and from which position they are missing.
 */
export function truncateMiddle(
  text: string,
  maxBytes: number,
  note: (omitted: number, from: number) => string,
): string {
  // A UTF-16 unit takes 1 to 6 bytes, so only texts in between are measured.
  if (text.length * 6 <= maxBytes) return text;
  if (text.length <= maxBytes && jsonBytes(text) <= maxBytes) return text;
  const budget = maxBytes - jsonBytes(note(text.length, text.length)) - 4;
  const head = text.slice(0, cutPoint(text, 0, Math.floor((budget * 3) / 4)));
  const reversed = cutStart(text, head.length, Math.floor(budget / 4));
  const tail = text.slice(reversed);
  return `${head}\n${note(text.length - head.length - tail.length, head.length)}\n${tail}`;
}

/** The smallest start of a piece that ends `value`, takes at most `maxBytes` and begins at or after `from`. */
function cutStart(value: string, from: number, maxBytes: number): number {
  let bytes = 0;
  let at = value.length;
  while (at > from) {
    const pair = at - 2 >= from && (value.codePointAt(at - 2) ?? 0) > 0xffff;
    const next = at - (pair ? 2 : 1);
    bytes += codePointBytes(value.codePointAt(next) ?? 0);
    if (bytes > maxBytes) return at;
    at = next;
  }
  return at;
}

/** The largest length (in JSON bytes) to which `texts` can be cut so that together they take at most `budget`. */
export function fairShare(texts: string[], budget: number): number {
  const sizes = texts.map(jsonBytes).sort((a, b) => a - b);
  let left = budget;
  for (const [i, size] of sizes.entries()) {
    const share = Math.floor(left / (sizes.length - i));
    if (size > share) return share;
    left -= size;
  }
  return budget;
}

/** A time in milliseconds since 1970 as records have it. */
export function isoTime(now: number): string {
  return new Date(now).toISOString();
}

/** The ISO time so many seconds after another one. */
export function addSeconds(at: string, seconds: number): string {
  return isoTime(Date.parse(at) + seconds * 1000);
}
