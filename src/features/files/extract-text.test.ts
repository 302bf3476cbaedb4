import { describe, expect, test } from 'vitest';
import { pdfOf, pdfWith } from '../../../test/support/pdf.ts';
import { docxOf, docxWith, zipOf } from '../../../test/support/zip.ts';
import { NEVER_ABORTED } from '../../lib/abort.ts';
import { extractText } from './extract-text.ts';

test('the pages of a PDF file are marked', async () => {
  expect(await extractText('pdf', pdfOf(['Hello (world)', 'Two']), NEVER_ABORTED)).toEqual({
    text: '[page 1]\nHello (world)\n\n[page 2]\nTwo',
  });
});

test('a file that cannot be read says why', async () => {
  const reason = async (bytes: Buffer) => {
    const read = await extractText('pdf', bytes, NEVER_ABORTED);
    return 'problem' in read ? read.problem : read.text;
  };
  expect(await reason(Buffer.from('%PDF-1.4 junk'))).toMatch(/^it is damaged: /);
  expect(await reason(Buffer.alloc(0))).toMatch(/^it is damaged: /);
  expect(await reason(pdfOf(['', '']))).toBe('it has no text on 2 pages: they may be scanned images');
});

test('a long file is read in part, and says so', async () => {
  const pages = Array.from({ length: 5 }, (_, i) => `page${i}`);
  expect(await extractText('pdf', pdfOf(pages), NEVER_ABORTED, { parts: 2 })).toEqual({
    text: '[page 1]\npage0\n\n[page 2]\npage1\n\n[the rest of the 5 pages was not read: the file is too long]',
  });
  expect(await extractText('pdf', pdfOf(pages), NEVER_ABORTED, { characters: 6 })).toEqual({
    text: '[page 1]\npage0\n\n[page 2]\np\n\n[the rest of the 5 pages was not read: the file is too long]',
  });
});

test('a file that takes too much memory or time ends its thread, and the pages before it are kept', async () => {
  const text = (content: string) => Buffer.from(`BT /F1 12 Tf ${content} ET`);
  const bomb = pdfWith([text('(first) Tj'), Buffer.alloc(160_000_000, ' ')]);
  expect(await extractText('pdf', bomb, NEVER_ABORTED, { memoryBytes: 96 * 1024 * 1024 })).toEqual({
    text: '[page 1]\nfirst\n\n[the rest of the 2 pages was not read: reading it takes too much memory]',
  });
  const endless = pdfWith([text('(a) Tj '.repeat(1_500_000))]);
  expect(await extractText('pdf', endless, NEVER_ABORTED, { milliseconds: 500 })).toEqual({
    problem: 'reading it takes longer than 0.5 s',
  });
});

test('a reader that is cancelled ends, also one that waits for others', async () => {
  const endless = pdfWith([Buffer.from(`BT ${'(a) Tj '.repeat(1_500_000)} ET`)]);
  const controller = new AbortController();
  const reading = Array.from({ length: 4 }, () => extractText('pdf', endless, controller.signal));
  controller.abort(new Error('cancelled'));
  for (const one of reading) await expect(one).rejects.toThrow('cancelled');
  expect(await extractText('pdf', pdfOf(['next']), NEVER_ABORTED)).toEqual({ text: '[page 1]\nnext' });
});

describe('archives', () => {
  const readZip = (...[entries, limits]: [Parameters<typeof zipOf>[0], Parameters<typeof extractText>[3]?]) =>
    extractText('zip', zipOf(entries), NEVER_ABORTED, limits);

  test('the entries are listed, and the texts among them read', async () => {
    const png = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0]);
    const inner = zipOf({ a: 'inner' });
    expect(
      await readZip({
        'src/': '',
        'src/größe.md': '# Größe\n',
        'a.png': png,
        'b.zip': inner,
        '../../etc/x\n': Buffer.from('\ufeffx', 'utf16le'),
        'secret.txt': { content: 'secret', encrypted: true },
      }),
    ).toEqual({
      text: [
        '[archive with 6 entries]',
        'src/ (0 bytes)',
        'src/größe.md (10 bytes)',
        'a.png (6 bytes)',
        `b.zip (${inner.length} bytes)`,
        '../../etc/x? (4 bytes)',
        'secret.txt (6 bytes, encrypted)',
        '',
        '[src/größe.md]',
        '# Größe',
        '',
        '[../../etc/x?]',
        'x',
      ].join('\n'),
    });
  });

  test('one that cannot be read says why, and a damaged entry does not hide the others', async () => {
    expect(await extractText('zip', Buffer.from('junk'), NEVER_ABORTED)).toEqual({
      problem: expect.stringMatching(/^it is damaged: End of central directory/),
    });
    expect(await readZip({})).toEqual({ problem: 'it has no entries' });
    const read = await readZip({ a: { content: 'x'.repeat(9), claims: 2 }, b: 'text' });
    expect(read).toEqual({ text: expect.stringMatching(/\[a\]\n\[it is damaged: too many bytes[^]*\[b\]\ntext$/) });
  });

  test('what is unpacked is bounded: entries, bytes, and characters', async () => {
    const ten = Object.fromEntries(Array.from({ length: 10 }, (_, i) => [`${i}`, 'x'.repeat(1_000)]));
    const note = /\n\n\[the rest of the 10 entries was not read: the file is too long\]$/;
    expect(await readZip(ten, { parts: 2 })).toEqual({
      text: expect.stringMatching(/^\[archive with 10 entries\]\n.*\n.*\nand 8 more, [^]*\[1\]\nx+$/),
    });
    for (const limits of [{ unpackedBytes: 2_500 }, { characters: 2_500 }]) {
      const read = await readZip(ten, limits);
      expect(read).toEqual({ text: expect.stringMatching(note) });
      expect(read).toEqual({ text: expect.not.stringContaining('\n[3]') });
    }
    // Longer than an entry may be: it is not even begun.
    const bomb = { content: Buffer.alloc(3_000_000, 'x') };
    const [listed, lying] = [await readZip({ bomb }), await readZip({ bomb: { ...bomb, claims: 100 } })];
    expect(listed).toEqual({ text: '[archive with 1 entries]\nbomb (3000000 bytes)' });
    expect(lying).toEqual({ text: expect.stringMatching(/\[it is damaged: too many bytes/) });
  });
});

describe('Word documents', () => {
  const readDocx = (bytes: Buffer, limits = {}) => extractText('docx', bytes, NEVER_ABORTED, limits);

  test('the text is extracted', async () => {
    expect(await readDocx(docxOf(['Hello &amp; more', 'Two']))).toEqual({ text: 'Hello & more\n\nTwo' });
    expect(await readDocx(docxOf(['Hello', 'Two']), { characters: 4 })).toEqual({
      text: 'Hell\n\n[the rest of the document was not read: the file is too long]',
    });
  });

  test('one that cannot be read says why', async () => {
    const reasons = [
      [zipOf({ a: 'x' }), /^it is damaged: /],
      [Buffer.from('junk'), /^it is damaged: /],
      [Buffer.from('d0cf11e0a1b11ae100', 'hex'), /^it is protected by a password/],
      [docxOf([]), /^it has no text$/],
    ] as const;
    for (const [bytes, reason] of reasons) {
      expect(await readDocx(bytes)).toEqual({ problem: expect.stringMatching(reason) });
    }
  });

  test('what is unpacked is bounded: files, bytes, memory and time', async () => {
    const long = docxWith({ content: `<w:body>${'<w:p></w:p>'.repeat(1_000_000)}</w:body>` });
    expect(await readDocx(long, { unpackedBytes: 8 * 1024 * 1024 })).toEqual({
      problem: 'it is larger than 8 MB unpacked',
    });
    expect(await readDocx(docxOf(['a']), { parts: 2 })).toEqual({ problem: 'it consists of more than 2 files' });
    expect(await readDocx(long, { memoryBytes: 96 * 1024 * 1024 })).toEqual({
      problem: 'reading it takes too much memory',
    });
    expect(await readDocx(long, { milliseconds: 300 })).toEqual({ problem: 'reading it takes longer than 0.3 s' });
    const lying = docxWith({ content: `<w:body>${' '.repeat(120_000_000)}</w:body>`, claims: 100 });
    expect(await readDocx(lying, { memoryBytes: 96 * 1024 * 1024 })).toEqual({
      problem: 'reading it takes too much memory',
    });
  });
});
