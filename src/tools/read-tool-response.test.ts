import { fc } from '../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { jsonBytes } from '../core/text.ts';
import type { ToolItem } from '../core/transcript.ts';
import { readToolResponse } from './read-tool-response.ts';

const noBlobs = () => Promise.reject(new Error('no blobs'));
const loadFile = () => undefined;

function result(content: string, more: Partial<ToolItem> = {}): ToolItem {
  return { role: 'tool', toolCallId: 'c1', name: 'export', content, files: [], ...more };
}

async function answer(text: string, args: Record<string, unknown>): Promise<string> {
  const given = await readToolResponse(
    [result(text)],
    { tool_call_id: 'c1', ...args },
    { loadBlob: noBlobs, loadFile },
  );
  return 'content' in given ? given.content : `problem: ${given.problem}`;
}

test('reads pieces by their position, which together are the whole, and of which none is cut again', async () => {
  const texts = fc.string({ unit: fc.constantFrom('a', '\n', 'é', '😀', '\u0000'), minLength: 1, maxLength: 30_000 });
  await fc.assert(
    fc.asyncProperty(texts, fc.option(fc.integer({ min: 1_000, max: 40_000 })), async (text, length) => {
      let whole = '';
      for (let offset = 0; offset < text.length;) {
        const read = await answer(text, { offset, ...(length && { length }) });
        const [, from, to, total, piece = ''] = /^\[characters (\d+) to (\d+) of (\d+)\]\n([^]*)$/.exec(read) ?? [];
        expect([Number(from), Number(total)]).toEqual([offset, text.length]);
        expect(piece.isWellFormed()).toBe(true);
        expect(jsonBytes(piece)).toBeLessThanOrEqual(32 * 1024);
        whole += piece;
        offset = Number(to);
      }
      expect(whole === text).toBe(true);
    }),
    { numRuns: 30 },
  );
});

test('finds a plain text in upper or lower case, with its positions and what is around it', async () => {
  const text = `${'x'.repeat(1_000)}Order 7${'y'.repeat(1_000)}ORDER 8`;
  expect(await answer(text, { search: 'order' })).toBe(
    `[2 matches from character 0 of 2014]\n` +
      `[at 1000] …${'x'.repeat(150)}Order 7${'y'.repeat(148)}…\n[at 2007] …${'y'.repeat(150)}ORDER 8…`,
  );
  expect(await answer(text, { search: 'order', offset: 1_001 })).toMatch(/^\[1 matches from .*\n\[at 2007\]/);
  expect(await answer(text, { search: '.*' })).toBe('[0 matches from character 0 of 2014]');
  // The lower case of this letter is longer: the text is searched as it is.
  expect(await answer('İOrder', { search: 'Order' })).toContain('[at 1]');
});

test('shows few of many matches, and counts up to a limit', async () => {
  const found = await answer('ab'.repeat(5_000), { search: 'ab' });
  expect(found.split('\n')).toHaveLength(21);
  expect(found).toMatch(/^\[more than 1000 matches/);
});

test('reads the whole text of a result that was cut when it was stored', async () => {
  const fullText = { name: 'r', mimeType: 'text/plain', bytes: 8, characters: 8, blob: 'b1', sessionId: 's' };
  const read = (loadBlob: (blob: string) => Promise<Buffer>) =>
    readToolResponse([result('cut', { fullText })], { tool_call_id: 'c1' }, { loadBlob, loadFile });
  expect(await read((blob) => Promise.resolve(Buffer.from(`whole ${blob}`)))).toEqual({
    content: '[characters 0 to 8 of 8]\nwhole b1',
  });
  expect(await read(noBlobs)).toEqual({ problem: 'The text cannot be read: no blobs' });
});

test('reads nothing but the results of its conversation', async () => {
  const asked: string[] = [];
  const load = (blob: string) => {
    asked.push(blob);
    return noBlobs();
  };
  const { problem } = {
    problem: '',
    ...(await readToolResponse([result('a')], { tool_call_id: 'c2' }, { loadBlob: load, loadFile })),
  };
  expect([problem, asked]).toEqual(['This conversation has no result of a tool call with the id c2.', []]);
  for (const args of [{ offset: 1 }, { offset: -1 }, { length: 0 }, { search: '' }, { search: 'x'.repeat(201) }]) {
    expect(await answer('a', args)).toMatch(/^problem: /);
  }
});

test('reads a file of the conversation by its id', async () => {
  const ask = (args: Record<string, unknown>, text?: { text: string } | { problem: string }) => {
    const load = (id: string) => (id === 'file_1' && text ? Promise.resolve(text) : undefined);
    return readToolResponse([result('a')], args, { loadBlob: noBlobs, loadFile: load });
  };
  expect(await ask({ file: 'file_1', offset: 2 }, { text: 'whole' })).toEqual({
    content: '[characters 2 to 5 of 5]\nole',
  });
  expect(await ask({ file: 'file_1' }, { problem: 'it is damaged' })).toEqual({
    problem: 'The file cannot be read: it is damaged.',
  });
  expect(await ask({ file: 'file_2' })).toEqual({
    problem: 'The file cannot be read: this conversation has no such file.',
  });
  for (const args of [{}, { tool_call_id: 'c1', file: 'file_1' }]) {
    expect(await ask(args, { text: 'whole' })).toEqual({ problem: 'Name either a tool_call_id or a file.' });
  }
});
