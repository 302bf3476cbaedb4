import { expect, test } from 'vitest';
import { pdfOf, pdfWith } from '../../test/support/pdf.ts';
import { NEVER } from '../lib/abort.ts';
import { readPdf } from './pdf-text.ts';

test('the pages of a PDF file are marked', async () => {
  expect(await readPdf(pdfOf(['Hello (world)', 'Two']), NEVER)).toEqual({
    text: '[page 1]\nHello (world)\n\n[page 2]\nTwo',
  });
});

test('a file that cannot be read says why', async () => {
  const reason = async (bytes: Buffer) => {
    const read = await readPdf(bytes, NEVER);
    return 'problem' in read ? read.problem : read.text;
  };
  expect(await reason(Buffer.from('%PDF-1.4 junk'))).toMatch(/^it is damaged: /);
  expect(await reason(Buffer.alloc(0))).toMatch(/^it is damaged: /);
  expect(await reason(pdfOf(['', '']))).toBe('it has no text on 2 pages: they may be scanned images');
});

test('a long file is read in part, and says so', async () => {
  const pages = Array.from({ length: 5 }, (_, i) => `page${i}`);
  expect(await readPdf(pdfOf(pages), NEVER, { pages: 2 })).toEqual({
    text: '[page 1]\npage0\n\n[page 2]\npage1\n\n[the rest of the 5 pages was not read: the file is too long]',
  });
  expect(await readPdf(pdfOf(pages), NEVER, { characters: 6 })).toEqual({
    text: '[page 1]\npage0\n\n[page 2]\np\n\n[the rest of the 5 pages was not read: the file is too long]',
  });
});

test('a file that takes too much memory or time ends its thread, and the pages before it are kept', async () => {
  const text = (content: string) => Buffer.from(`BT /F1 12 Tf ${content} ET`);
  const bomb = pdfWith([text('(first) Tj'), Buffer.alloc(160_000_000, ' ')]);
  expect(await readPdf(bomb, NEVER, { memoryBytes: 96 * 1024 * 1024 })).toEqual({
    text: '[page 1]\nfirst\n\n[the rest of the 2 pages was not read: reading it takes too much memory]',
  });
  const endless = pdfWith([text('(a) Tj '.repeat(1_500_000))]);
  expect(await readPdf(endless, NEVER, { milliseconds: 500 })).toEqual({
    problem: 'reading it takes longer than 0.5 s',
  });
});

test('a reader that is cancelled ends, also one that waits for others', async () => {
  const endless = pdfWith([Buffer.from(`BT ${'(a) Tj '.repeat(1_500_000)} ET`)]);
  const controller = new AbortController();
  const reading = Array.from({ length: 4 }, () => readPdf(endless, controller.signal));
  controller.abort(new Error('cancelled'));
  for (const one of reading) await expect(one).rejects.toThrow('cancelled');
  expect(await readPdf(pdfOf(['next']), NEVER)).toEqual({ text: '[page 1]\nnext' });
});
