import type { InputItem } from './records.ts';

const MAX_LENGTH = 50;

/** A session's title if nobody gives it one: how the first text of its first turn begins. */
export function titleOf(input: InputItem[]): string | null {
  const texts = input.flatMap((item) => {
    if (item.type !== 'user.message') return [];
    if (typeof item.content === 'string') return [item.content];
    return item.content.flatMap((part) => (part.type === 'text' ? [part.text] : []));
  });
  const first = texts.find((text) => text.trim() !== '')?.trimStart() ?? '';
  // Cut by characters, not by UTF-16 units; and PostgreSQL's text holds no NUL.
  const start = first
    .slice(0, 2 * MAX_LENGTH)
    .toWellFormed()
    .replaceAll('\0', '');
  return Array.from(start).slice(0, MAX_LENGTH).join('').trim() || null;
}
