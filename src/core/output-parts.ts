/** Where an output comes from. `notice`: a note of Everturn. */
export const OUTPUT_CHANNELS = ['stdout', 'stderr', 'display', 'error', 'notice'] as const;

/** A piece of what code has written, on one channel. */
export interface OutputPart {
  channel: (typeof OUTPUT_CHANNELS)[number];
  text: string;
}

/** Adds a part to an output, in place: neighbours are of different channels. */
export function appendPart(parts: OutputPart[], { channel, text }: OutputPart): void {
  const last = parts.at(-1);
  if (last?.channel === channel) last.text += text;
  else parts.push({ channel, text });
}

/** The length of an output in characters. */
export function lengthOf(parts: readonly OutputPart[]): number {
  return parts.reduce((sum, { text }) => sum + text.length, 0);
}

/** An output without its first `length` characters. */
export function partsAfter(parts: readonly OutputPart[], length: number): OutputPart[] {
  let skipped = 0;
  return parts.flatMap(({ channel, text }) => {
    const rest = text.slice(Math.max(0, length - skipped));
    skipped += text.length;
    return rest === '' ? [] : [{ channel, text: rest }];
  });
}
