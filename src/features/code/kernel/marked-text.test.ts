import { describe, expect, it } from 'vitest';
import { MarkedText } from './marked-text.ts';

const MARK = '\0mark\0';

describe('MarkedText', () => {
  it('finds the mark wherever the text is cut', () => {
    const all = `before\0ma${MARK}after`;
    for (let size = 1; size <= all.length; size++) {
      const text = new MarkedText(MARK);
      let found = '';
      let marks = 0;
      for (let at = 0; at < all.length; at += size) {
        const piece = text.push(all.slice(at, at + size));
        found += piece.text;
        marks += Number(piece.isMarked);
      }
      expect([found + text.rest(), marks], `pieces of ${size}`).toEqual(['before\0maafter', 1]);
    }
  });

  it('holds back no more than what may become the mark', () => {
    const text = new MarkedText(MARK);
    expect(text.push('a\0ma')).toEqual({ text: 'a', isMarked: false });
    expect(text.push('x')).toEqual({ text: '\0max', isMarked: false });
    expect(text.push('b\0')).toEqual({ text: 'b', isMarked: false });
    expect(text.rest()).toBe('\0');
  });
});
