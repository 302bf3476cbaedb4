import path from 'node:path';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import type { ContentBlock } from '@modelcontextprotocol/client';
import { describe, expect, onTestFinished, test } from 'vitest';
import { FolderBlobStore } from '../blobs/folder-blob-store.ts';
import type { FileContent } from '../blobs/store-files.ts';
import { offloadResult } from '../blobs/offload.ts';
import { cpuStopwatch } from '../lib/timeout.ts';
import { readResult, storeToolResult } from './results.ts';

const sessionId = 'ses_1';

/** Stores a result as it enters the history. */
async function stored(result: { text: string; files: FileContent[]; structured?: string | undefined }) {
  const root = await mkdtemp(path.join(tmpdir(), 'everturn-results-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const blobs = new FolderBlobStore(root);
  const kept = await storeToolResult(result, { blobs, sessionId });
  return { kept, bytes: Buffer.byteLength(JSON.stringify(await offloadResult([kept], { blobs, sessionId }))) };
}

const KIB = 1024;
const base64 = (bytes: number) => Buffer.alloc(bytes, 1).toString('base64');
const text = (value: string): ContentBlock => ({ type: 'text', text: value });

test('texts are joined by newlines', () => {
  expect(readResult({ content: [text('a'), text(''), text('b')] })).toEqual({ text: 'a\n\nb', files: [] });
  expect(readResult({ content: [] })).toEqual({ text: '', files: [] });
});

describe('structured content', () => {
  const png = { type: 'image' as const, mimeType: 'image/png', data: base64(3) };
  const resource = { type: 'resource' as const, resource: { uri: 'a:b', text: 'c' } };
  const link = { type: 'resource_link' as const, name: 'n', uri: 'a:b' };
  test.each<[ContentBlock[], unknown, string, boolean]>([
    [[], { a: 1 }, '{"a":1}', false],
    [[text('')], { a: 1 }, '\n{"a":1}', false],
    [[link], { a: 1 }, '[n: a:b]\n{"a":1}', false],
    [[text('6')], { result: 6 }, '6', true],
    [[text('one')], { a: 1 }, 'one', true],
    [[png], { a: 1 }, '[image-1.png, image/png, 3 B]', true],
    [[resource], { a: 1 }, 'c', true],
    [[], null, 'null', false],
    [[text('null')], undefined, 'null', false],
  ])('is shown only beside no text, image or resource, and kept otherwise: %j with %j', (...example) => {
    const [content, structuredContent, expected, isKept] = example;
    const { text: said, structured } = readResult({ content, structuredContent });
    expect(said).toBe(expected);
    expect(structured).toBe(isKept ? JSON.stringify(structuredContent) : undefined);
  });

  const mixed = Buffer.from(Array.from({ length: 3 * KIB }, (_, i) => (i * i) % 251)).toString('base64');
  const broken = (length: number, end = '\r\n') => mixed.replaceAll(new RegExp(`.{${length}}`, 'g'), `$&${end}`);

  test.each([
    ['MIME', broken(76)],
    ['PEM', broken(64, '\n')],
    ['base64 in URLs', mixed.replaceAll('+', '-').replaceAll('/', '_')],
  ])('in %s is no text', (_, encoded) => {
    expect(JSON.parse(readResult({ content: [], structuredContent: { encoded } }).text)).toEqual({
      encoded: '[base64, 3 KB]',
    });
  });

  test.each([
    ['a sequence of DNA', 'ACGT'.repeat(200)],
    ['a hash in hexadecimal', '0123456789abcdef'.repeat(50)],
    ['a list of names', Array.from({ length: 200 }, (_, i) => `Name${i}`).join('\n')],
    ['a line that ends otherwise', `${mixed}!`],
  ])('that is %s stays', (_, text) => {
    expect(JSON.parse(readResult({ content: [], structuredContent: { text } }).text)).toEqual({ text });
  });

  test('is searched for base64 in linear time', () => {
    const text = `${`${'aA1'.repeat(30)}\n`.repeat(100_000)}!`;
    const used = cpuStopwatch();
    expect(readResult({ content: [], structuredContent: { text } }).text === JSON.stringify({ text })).toBe(true);
    expect(used()).toBeLessThan(1_000);
  });

  test('shows no base64, and is then kept whole', () => {
    const structuredContent = {
      a: mixed,
      b: [`data:image/png;base64,${base64(6 * KIB)}`],
      c: 'x y '.repeat(900),
    };
    const { text: said, structured } = readResult({ content: [], structuredContent });
    expect(JSON.parse(said)).toEqual({ a: '[base64, 3 KB]', b: ['[base64, 6 KB]'], c: structuredContent.c });
    expect(structured).toBe(JSON.stringify(structuredContent));
  });

  test('that the text does not have is kept by the log: beside small results in the record, else as a blob', async () => {
    const kept = async (json: string) =>
      (await stored({ text: 'a', files: [], structured: json })).kept.structuredContent;
    expect(await kept('{"a":1}')).toEqual({
      type: 'file',
      name: 'structured.json',
      mimeType: 'application/json',
      bytes: 7,
      base64: Buffer.from('{"a":1}').toString('base64'),
    });
    const long = JSON.stringify({ a: 'x'.repeat(100 * KIB) });
    expect(await kept(long)).toMatchObject({ bytes: long.length, blob: expect.stringMatching(/^[0-9a-f]{64}$/) });
  });

  test('that is nested too deep is replaced by a note', () => {
    const deep: unknown = JSON.parse('['.repeat(100_000) + ']'.repeat(100_000));
    expect(readResult({ content: [], structuredContent: deep }).text).toBe(
      '[structured content that is nested too deep to show]',
    );
  });
});

test('images, audio and binary resources become files that the text names', () => {
  const { text: said, files } = readResult({
    content: [
      text('see'),
      { type: 'image', mimeType: 'image/png', data: base64(12 * 1024) },
      { type: 'audio', mimeType: 'audio/x-wav', data: base64(3) },
      { type: 'image', mimeType: 'image/svg+xml', data: base64(2 * 1024 * 1024) },
      {
        type: 'resource',
        resource: { uri: 'file:///tmp/report.pdf?v=1', mimeType: 'application/pdf', blob: base64(9) },
      },
      { type: 'resource', resource: { uri: 'test://', blob: base64(1) } },
    ],
  });
  expect(said.split('\n')).toEqual([
    'see',
    '[image-1.png, image/png, 12 KB]',
    '[audio-2.wav, audio/x-wav, 3 B]',
    '[image-3.svg, image/svg+xml, 2.0 MB]',
    '[report.pdf, application/pdf, 9 B]',
    '[resource-5, application/octet-stream, 1 B]',
  ]);
  expect(files.map(({ name }) => name)).toEqual([
    'image-1.png',
    'audio-2.wav',
    'image-3.svg',
    'report.pdf',
    'resource-5',
  ]);
  expect(files[1]).toEqual({ name: 'audio-2.wav', mimeType: 'audio/x-wav', base64: base64(3) });
});

test('a resource becomes its text, a link its name and URI', () => {
  const content: ContentBlock[] = [
    { type: 'resource', resource: { uri: 'file:///a.md', mimeType: 'text/markdown', text: '# A' } },
    { type: 'resource_link', name: 'the whole', uri: 'https://example.com/b' },
  ];
  expect(readResult({ content })).toEqual({ text: '# A\n[the whole: https://example.com/b]', files: [] });
});

test('a binary resource of a type of text becomes its text, unless it is none', () => {
  const blob = (bytes: string | Buffer, mimeType: string): ContentBlock => ({
    type: 'resource',
    resource: { uri: 'demo://1', mimeType, blob: Buffer.from(bytes).toString('base64') },
  });
  const content = [
    blob('héllo', 'text/plain; charset=utf-8'),
    blob('{}', 'application/json'),
    blob('<a/>', 'image/svg+xml'),
    blob(Buffer.from([0xff]), 'text/plain'),
  ];
  expect(readResult({ content }).text).toBe('héllo\n{}\n[1, image/svg+xml, 4 B]\n[1, text/plain, 1 B]');
});

test('types and names with unsafe characters are replaced', () => {
  const { files } = readResult({
    content: [
      { type: 'image', mimeType: 'image/png\r\nx: y', data: '' },
      { type: 'resource', resource: { uri: 'file:///a"\n../b\u0000c', mimeType: 'A/B;charset=x', blob: '' } },
    ],
  });
  expect(files).toEqual([
    { name: 'image-1.octet', mimeType: 'application/octet-stream', base64: '' },
    { name: 'b_c', mimeType: 'application/octet-stream', base64: '' },
  ]);
});

test('types above the limit of inputs are replaced, and extensions are short', () => {
  const image = (mimeType: string): ContentBlock => ({ type: 'image', mimeType, data: '' });
  const { files } = readResult({
    content: [
      image(`image/${'x'.repeat(127)}`),
      image(`image/${'x'.repeat(128)}`),
      image(`${'x'.repeat(128)}/png`),
      { type: 'resource', resource: { uri: 'file:///a', mimeType: `image/${'x'.repeat(900)}`, blob: '' } },
    ],
  });
  expect(files.map(({ name, mimeType }) => [name, mimeType])).toEqual([
    [`image-1.${'x'.repeat(16)}`, `image/${'x'.repeat(127)}`],
    ['image-2.octet', 'application/octet-stream'],
    ['image-3.octet', 'application/octet-stream'],
    ['a', 'application/octet-stream'],
  ]);
});

test('names and URIs are cut', () => {
  const long = 'x/'.repeat(1_000_000);
  const { text: said, files } = readResult({
    content: [
      { type: 'resource_link', name: long, uri: `https://example.com/${long}` },
      { type: 'resource', resource: { uri: `data:${long}${'y'.repeat(200)}?${long}`, blob: '' } },
    ],
  });
  expect(said.length).toBeLessThan(5_000);
  expect(files[0]?.name).toBe('y'.repeat(100));
});

test('text stays valid Unicode, NUL included', () => {
  const said = readResult({ content: [text('a\u0000b\ud800c\ud83d\ude00')] }).text;
  expect(said).toBe('a\u0000b\ufffdc\ud83d\ude00');
  expect(readResult({ content: [], structuredContent: { a: '\ud800' } }).text.isWellFormed()).toBe(true);
});

test.each([
  ['a long text', { text: 'x'.repeat(100 * KIB), files: [] }],
  ['a text that is cut', { text: '"'.repeat(2_000 * KIB), files: [] }],
  ['small files', { text: '', files: Array.from({ length: 60 }, (_, i) => file(`${i}.png`, 900)) }],
  ['a file', { text: 'a file', files: [file('a.png', 60 * KIB)] }],
])('%s leaves at most 16 KiB in the history', async (_, result) => {
  const { bytes } = await stored(result);
  expect(bytes).toBeLessThanOrEqual(16 * KIB);
});

test('a text that is cut names the file that has all of it', async () => {
  const text = 'x'.repeat(300 * KIB);
  const root = await mkdtemp(path.join(tmpdir(), 'everturn-results-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const blobs = new FolderBlobStore(root);
  const { content, files, fullText } = await storeToolResult({ text, files: [] }, { blobs, sessionId });
  expect(content).toMatch(/^x+\n\[\d+ characters left out; result\.txt has the whole result\]\nx+$/);
  expect(files).toBeUndefined();
  expect(fullText).toMatchObject({ name: 'result.txt', mimeType: 'text/plain', bytes: text.length, sessionId });
  expect((await blobs.get(sessionId, fullText?.blob ?? '')).toString() === text).toBe(true);
});

function file(name: string, bytes: number): FileContent {
  return { name, mimeType: 'image/png', base64: base64(bytes) };
}

test('files are kept up to the limit of the record, with types and names of any length', async () => {
  const image = { type: 'image' as const, data: base64(1) };
  const most = { type: 'resource' as const, resource: { uri: `file:///${'n'.repeat(300)}`, blob: base64(1) } };
  const type = `${'t'.repeat(127)}/${'s'.repeat(127)}`;
  const short = await stored(
    readResult({ content: Array.from({ length: 300 }, () => ({ ...image, mimeType: 'a/b' })) }),
  );
  expect(short.kept.files).toHaveLength(100);
  expect(short.kept.content).toMatch(/\[200 more files of this result were left out\]$/);
  const content = Array.from({ length: 300 }, () => ({ ...most, resource: { ...most.resource, mimeType: type } }));
  const long = await stored(readResult({ content }));
  expect(long.kept.files?.length).toBeGreaterThan(50);
  expect(Buffer.byteLength(JSON.stringify(long.kept.files))).toBeLessThanOrEqual(40 * KIB);
  expect(long.bytes).toBeLessThanOrEqual(48 * KIB);
});
