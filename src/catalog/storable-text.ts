/**
 * A text as both databases can hold it. PostgreSQL's text has no NUL, so NUL becomes U+FFFD, by which the drivers replace
 * invalid UTF-16. JSON is not affected: it is stored as text in which both are escaped.
 */
export function storableText(text: string): string {
  return text.includes('\0') ? text.replaceAll('\0', '\ufffd') : text;
}
