import { isJsonObject } from '../../../lib/json.ts';

/** Characters that are escaped: controls, invisible characters, and those that change the direction of text. */
const HIDDEN = /[\p{C}\p{Z}]/gu;

/** The literal of a text, on one line, in ASCII or printable characters. */
export function pythonString(text: string): string {
  return `"${escaped(text, ' ')}"`;
}

/** A docstring, indented like its function or class. */
export function docstring(text: string, indent: string): string {
  const lines = text
    .trim()
    .split(/\r\n|\n|\r/)
    .map((line) => escaped(line, ' ').trimEnd());
  return `${indent}"""${lines.join(`\n${indent}`).replaceAll(/^ +$/gm, '')}"""`;
}

/** The literal of a JSON value. */
export function pythonLiteral(value: unknown): string {
  if (value === null || value === undefined) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (typeof value === 'number') return Number.isFinite(value) ? String(value === 0 ? 0 : value) : 'None';
  if (typeof value === 'string') return pythonString(value);
  if (Array.isArray(value)) return `[${value.map(pythonLiteral).join(', ')}]`;
  if (!isJsonObject(value)) return 'None';
  const entries = Object.entries(value).map(([key, one]) => `${pythonString(key)}: ${pythonLiteral(one)}`);
  return `{${entries.join(', ')}}`;
}

function escaped(text: string, kept: string): string {
  return text
    .toWellFormed()
    .replaceAll(/[\\"]/g, String.raw`\$&`)
    .replaceAll(HIDDEN, (character) => (character === kept ? character : escapeOf(character)));
}

function escapeOf(character: string): string {
  if (character === '\n') return String.raw`\n`;
  const hex = (character.codePointAt(0) ?? 0).toString(16);
  if (hex.length <= 2) return `\\x${hex.padStart(2, '0')}`;
  return hex.length <= 4 ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`;
}
