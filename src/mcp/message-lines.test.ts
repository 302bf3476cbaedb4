import { expect, test } from 'vitest';
import { MessageLines } from './message-lines.ts';

interface Read {
  /** Lines as they are, and of a cut one the ends and the bound. */
  lines: (string | { head: string; tail: string; error: string })[];
  bytes: number;
}

async function read(chunks: string[], maxBytes = 1_000): Promise<Read> {
  const read: Read = { lines: [], bytes: 0 };
  const lines = new MessageLines({
    maxBytes,
    onBytes: (bytes) => void (read.bytes += bytes),
    onLine: (line) => void read.lines.push(line),
    onCut: ({ head, tail, error }) => void read.lines.push({ head, tail, error: error.message }),
  });
  for (const chunk of chunks) await lines.push(Buffer.from(chunk));
  lines.release();
  return read;
}

const long = `<${'a'.repeat(998)}${'z'.repeat(2_000)}>`;
const cutLong = {
  head: `<${'a'.repeat(255)}`,
  tail: `${'z'.repeat(255)}>`,
  error: 'its answer is larger than 0.9765625 KiB',
};

test('only the ends of a line that is too long are kept, and the lines around it are whole', async () => {
  const text = `one\n${long}\ntwo\nthree\n${long}\n`;
  const expected = ['one', cutLong, 'two', 'three', cutLong];
  expect(await read([text])).toEqual({ lines: expected, bytes: text.length });
  expect((await read(text.split(''))).lines).toEqual(expected);
  for (const at of [1, 4, 5, 900, 1_003, 1_005, 1_010, text.length - 1]) {
    expect((await read([text.slice(0, at), text.slice(at)])).lines).toEqual(expected);
  }
});

test.each([
  ['[' + '{},'.repeat(60_000) + '1]', 'its answer has more than 50000 values'],
  ['['.repeat(200) + ']'.repeat(200), 'its answer is nested deeper than 100 levels'],
])('a line with too many values, or too deep ones, is cut off in the same way', async (line, error) => {
  const { lines } = await read([`one\n${line}\ntwo\n`], 1_000_000);
  expect(lines).toEqual(['one', { head: line.slice(0, 256), tail: line.slice(-256), error }, 'two']);
});

test('more lines than one turn of the event loop takes are passed on before one that is too long', async () => {
  const many = Array.from({ length: 100 }, (_, i) => `line ${i}`);
  expect((await read([`${many.join('\n')}\n${long}\nend\n`])).lines).toEqual([...many, cutLong, 'end']);
});
