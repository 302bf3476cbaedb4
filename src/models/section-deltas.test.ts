import { expect, test } from 'vitest';
import { emptyText, type MessageText } from '../core/message.ts';
import { applySections, type HostedPart } from '../core/sections.ts';
import { SectionDeltas } from './section-deltas.ts';

/** The hosted parts of a message that its provider gives one by one. */
function kept(parts: HostedPart[]): HostedPart[] {
  const text: MessageText = emptyText();
  const sections = new SectionDeltas();
  for (const part of parts) applySections((text.sections ??= []), sections.after({ hosted: [part] }, text));
  return (text.sections ?? []).flatMap(({ hosted }) => hosted ?? []);
}

const sources = (count: number, signature: string) =>
  Array.from({ length: count }, (_, i) => ({ url: `https://${i}.example`, signature }));

test('the encrypted content of a result that is too large is left out', () => {
  const [large] = kept([{ type: 'result', id: 'a', sources: sources(200, 'x'.repeat(1024)) }]);
  expect(large).toEqual({
    type: 'result',
    id: 'a',
    sources: sources(100, '').map(({ url }) => ({ url })),
  });
});

test('parts that exceed the limits of a message are left out', () => {
  const small = Array.from({ length: 600 }, (_, i): HostedPart => ({ type: 'call', id: `c${i}` }));
  expect(kept(small)).toHaveLength(500);
  const large = small.slice(0, 20).map(({ id }): HostedPart => ({
    type: 'result',
    id,
    sources: sources(9, 'x'.repeat(10_000)),
  }));
  expect(kept(large)).toHaveLength(11);
  expect(kept([{ type: 'call', id: 'x'.repeat(65) }])).toEqual([]);
});
