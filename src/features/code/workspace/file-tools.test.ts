import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { FILE_TOOLS, READ_FILE } from './file-tools.ts';
import { WorkspaceFiles } from './workspace-files.ts';

let folder: string;
let files: WorkspaceFiles;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-workspace-'));
  files = new WorkspaceFiles({ folder });
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const put = (name: string, content: string | Buffer) => writeFile(path.join(folder, name), content);
const contentOf = (name: string) => readFile(path.join(folder, name), 'utf8');

function call(tool: string, args: object, hidden?: string[]) {
  const found = FILE_TOOLS.find(({ name }) => name === tool);
  if (!found) throw new Error(`there is no tool ${tool}`);
  return found.run(args, files, hidden);
}

const succeeded = (text: string) => ({ text, isError: false });
const failed = (text: RegExp) => ({ text: expect.stringMatching(text), isError: true });

test('models are told what the tools take', () => {
  expect(FILE_TOOLS.map(({ name, effect, action, parameters }) => ({ name, effect, action, parameters }))).toEqual([
    {
      name: 'read_file',
      effect: 'retry',
      action: 'file_read',
      parameters: {
        type: 'object',
        properties: {
          path: { type: 'string', description: expect.any(String) },
          offset: { type: 'integer', minimum: 1, maximum: 1e9, default: 1, description: 'The first line, from 1.' },
          limit: { type: 'integer', minimum: 1, maximum: 1e9, description: 'How many lines. Default: all.' },
        },
        required: ['path'],
        additionalProperties: false,
      },
    },
    expect.objectContaining({ name: 'read_media', effect: 'retry', action: 'file_read' }),
    expect.objectContaining({ name: 'write_file', effect: 'retry', action: 'file_write' }),
    expect.objectContaining({
      name: 'edit_file',
      effect: 'once',
      action: 'file_edit',
      parameters: expect.objectContaining({ required: ['path', 'old_text', 'new_text'] }),
    }),
  ]);
});

test.each([
  { name: 'all lines', args: {}, text: 'one\ntwo\r\nthree' },
  { name: 'the lines from one', args: { offset: 2 }, text: 'two\r\nthree' },
  { name: 'some lines', args: { offset: 2, limit: 1 }, text: 'two\r\n' },
  { name: 'the first lines', args: { limit: 2 }, text: 'one\ntwo\r\n' },
  { name: 'more lines than there are', args: { offset: 3, limit: 9 }, text: 'three' },
])('read_file gives $name', async ({ args, text }) => {
  await put('a.txt', '\uFEFFone\ntwo\r\nthree');
  expect(await call('read_file', { path: '/workspace/a.txt', ...args })).toEqual(succeeded(text));
});

test('read_file gives the lines of a text of many pieces', async () => {
  const lines = Array.from({ length: 50_000 }, (_, index) => `line ${index + 1} ä`);
  await put('a.txt', lines.join('\n'));
  for (const offset of [1, 4_096, 31_234, 49_990]) {
    const { text } = await call('read_file', { path: 'a.txt', offset, limit: 10 });
    expect(text).toBe(`${lines.slice(offset - 1, offset + 9).join('\n')}${offset + 9 < 50_000 ? '\n' : ''}`);
  }
});

test('read_file continues where it has cut a long text', async () => {
  const lines = Array.from({ length: 30_000 }, (_, index) => `${'ä'.repeat(index % 20)}${index}`);
  await put('a.txt', lines.join('\n'));
  let read = '';
  let offset: number | undefined = 1;
  for (let calls = 0; offset !== undefined; calls += 1) {
    expect(calls).toBeLessThan(4);
    const { text, isError } = await call('read_file', { path: 'a.txt', offset });
    expect(isError).toBe(false);
    const [, lines = text, from, to, next] =
      /^([^]*\n)\[everturn\] cut: these are the lines (\d+) to (\d+); continue with offset (\d+)$/.exec(text) ?? [];
    expect(Buffer.byteLength(lines)).toBeLessThanOrEqual(256 * 1024);
    read += lines;
    if (next !== undefined) expect([Number(from), Number(to)]).toEqual([offset, Number(next) - 1]);
    offset = next === undefined ? undefined : Number(next);
  }
  expect(read).toBe(lines.join('\n'));
});

test('read_file shows no beginning of a hidden value where it cuts a text', async () => {
  const read = async (more: object) =>
    (await call('read_file', { path: 'a.txt', ...more }, ['secret\nkey', 'secret'])).text;
  await put('a.txt', `${'x'.repeat(262_140)}secret`);
  expect(await read({})).toMatch(/^x{262140}\n\[everturn\] cut: line 1 /);
  await put('a.txt', 'one\nsecret\nkey');
  expect(await read({ limit: 2 })).toBe('one\n');
  expect(await read({})).toBe('one\nsecret\nkey');
  // Nothing follows: this is all of the file.
  await put('a.txt', 'one\nsec');
  expect([await read({ limit: 9 }), await read({ limit: 2 })]).toEqual(['one\nsec', 'one\nsec']);
});

test('read_file cuts a line that is too long, between two characters', async () => {
  await put('a.txt', `first\n${'😀'.repeat(100_000)}`);
  const { text } = await call('read_file', { path: 'a.txt', offset: 2 });
  expect(text).toMatch(/^(?:😀)+\n\[everturn\] cut: line 2 has more than 262144 bytes; use code for its rest$/u);
});

test.each([
  { name: 'behind the end', content: 'a\nb\n', offset: 3, problem: /"a.txt" has 2 lines: offset is behind its end/ },
  { name: 'behind the last line', content: 'a\nb', offset: 9, problem: /has 2 lines/ },
  { name: 'of an empty file', content: '', offset: 2, problem: /has 0 lines/ },
])('an offset $name is an error', async ({ content, offset, problem }) => {
  await put('a.txt', content);
  expect(await call('read_file', { path: 'a.txt', offset })).toEqual(failed(problem));
});

test('an empty file is read', async () => {
  await put('a.txt', '');
  expect(await call('read_file', { path: 'a.txt' })).toEqual(succeeded(''));
});

test('a file of 10 TB is not read to its end', async () => {
  await put('large', 'first\n');
  await truncate(path.join(folder, 'large'), 10 * 1024 ** 4);
  expect(await call('read_file', { path: 'large', limit: 1 })).toEqual(succeeded('first\n'));
  expect(await call('read_file', { path: 'large', offset: 2 })).toEqual(failed(/"large" is not a text/));
  expect(await call('read_file', { path: 'large', offset: 3 })).toEqual(failed(/line 3 .* not within its first/));
  expect(await call('edit_file', { path: 'large', old_text: 'a', new_text: 'b' })).toEqual(failed(/more than 4194304/));
  expect(await call('read_media', { path: 'large' })).toEqual(
    succeeded('"large" (application/octet-stream, 10485760.0 MB)'),
  );
});

test.each([
  ['NUL', Buffer.from('a\0b')],
  ['bytes that are not UTF-8', Buffer.from([0x61, 0xe9])],
])('a file with %s is neither read nor edited as a text', async (_, content) => {
  await put('a.bin', content);
  expect(await call('read_file', { path: 'a.bin' })).toEqual(failed(/not a text in UTF-8: use code or read_media/));
  expect(await call('edit_file', { path: 'a.bin', old_text: 'a', new_text: 'b' })).toEqual(failed(/not a text/));
  expect(await readFile(path.join(folder, 'a.bin'))).toEqual(content);
});

test('a pipe is not waited for', async () => {
  execFileSync('mkfifo', [path.join(folder, 'pipe')]);
  for (const tool of ['read_file', 'read_media']) {
    expect(await call(tool, { path: 'pipe' })).toEqual(failed(/not a regular file/));
  }
});

const PADDING = Buffer.alloc(40);
test.each([
  ['image/png', '\x89PNG\r\n\x1a\n'],
  ['image/jpeg', '\xff\xd8\xff\xe0'],
  ['image/gif', 'GIF89a'],
  ['image/webp', 'RIFF\x01\x02\x03\x04WEBP'],
  ['application/pdf', '%PDF-1.7'],
  ['audio/wav', 'RIFF\x01\x02\x03\x04WAVE'],
  ['audio/mpeg', 'ID3\x04'],
  ['audio/mpeg', '\xff\xfb\x90'],
  ['audio/aac', '\xff\xf1\x50'],
  ['audio/flac', 'fLaC'],
  ['audio/opus', `OggS${'\0'.repeat(24)}OpusHead`],
])('read_media gives %s by its first bytes', async (mediaType, start) => {
  const data = Buffer.concat([Buffer.from(start, 'latin1'), PADDING]);
  await put('misleading.txt', data);
  expect(await call('read_media', { path: 'misleading.txt' })).toEqual({
    text: `"misleading.txt" (${mediaType}, ${data.length} B)`,
    isError: false,
    media: { mediaType, data },
  });
});

test('read_media gives the type and the size of other files, and of what is too large', async () => {
  await put('a.png', 'only a text ä');
  await put('b.png', Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'));
  await truncate(path.join(folder, 'b.png'), 9 * 1024 * 1024);
  await put('empty', '');
  expect(await call('read_media', { path: 'a.png' })).toEqual(succeeded('"a.png" (text/plain, 14 B)'));
  expect(await call('read_media', { path: 'b.png' })).toEqual(
    succeeded('"b.png" (image/png, 9.0 MB): models get at most 8.0 MB; make it smaller by code'),
  );
  expect(await call('read_media', { path: 'empty' })).toEqual(succeeded('"empty" (text/plain, 0 B)'));
});

test('write_file makes folders, and replaces a file', async () => {
  const written = await call('write_file', { path: '/workspace/a/b/c.txt', content: 'ä' });
  expect(written).toEqual(succeeded('Wrote 2 bytes to /workspace/a/b/c.txt'));
  expect(await contentOf('a/b/c.txt')).toBe('ä');
  await call('write_file', { path: 'a/b/c.txt', content: '' });
  expect(await contentOf('a/b/c.txt')).toBe('');
});

test('edit_file changes one place, and keeps line ends and the byte order mark', async () => {
  await put('a.txt', '\uFEFFone\r\ntwo\r\n');
  const args = { path: 'a.txt', old_text: 'one\ntwo', new_text: '1\n2' };
  expect(await call('edit_file', args)).toEqual(succeeded('Edited a.txt'));
  expect(await contentOf('a.txt')).toBe('\uFEFF1\r\n2\r\n');
  const loose = { path: 'a.txt', old_text: '1 \n2', new_text: '3' };
  expect(await call('edit_file', loose)).toEqual(succeeded(expect.stringMatching(/^Edited a.txt \(old_text without/)));
});

test('edit_file changes nothing if there are two places or none', async () => {
  await put('a.txt', 'a b a');
  expect(await call('edit_file', { path: 'a.txt', old_text: 'a', new_text: 'x' })).toEqual(failed(/more than once/));
  expect(await call('edit_file', { path: 'a.txt', old_text: 'c', new_text: 'x' })).toEqual(failed(/does not occur/));
  expect(await contentOf('a.txt')).toBe('a b a');
});

test('edits of one file at the same time are all made', async () => {
  await put('a.txt', Array.from({ length: 20 }, (_, index) => `<${index}>`).join('\n'));
  const edit = (index: number) =>
    call('edit_file', {
      path: index % 2 ? './a.txt' : '/workspace/a.txt',
      old_text: `<${index}>`,
      new_text: `${index}`,
    });
  await Promise.all(Array.from({ length: 20 }, (_, index) => edit(index)));
  expect(await contentOf('a.txt')).toBe(Array.from({ length: 20 }, (_, index) => index).join('\n'));
});

test('arguments that do not fit are rejected', async () => {
  for (const args of [{}, { path: 1 }, { path: 'a', offset: 0 }, { path: 'a', limit: 1.5 }]) {
    await expect(call('read_file', args)).rejects.toThrow(z.ZodError);
  }
  await expect(call('edit_file', { path: 'a', old_text: '', new_text: 'x' })).rejects.toThrow(z.ZodError);
  const content = 'x'.repeat(1_000_001);
  await expect(call('write_file', { path: 'a', content })).rejects.toThrow(z.ZodError);
});

test('read_file reads another folder at its place, and nothing outside of it', async () => {
  await put('a.py', 'run');
  await symlink('/etc/hostname', path.join(folder, 'link.py'));
  const tools = new WorkspaceFiles({ folder, place: '/tools' });
  const read = (file: string) => READ_FILE.run({ path: file }, tools);
  expect(await read('/tools/a.py')).toEqual(succeeded('run'));
  for (const outside of ['/workspace/a.py', '/tools/../a.py', '/tools/link.py', '/tools2/a.py']) {
    expect(await read(outside)).toEqual(failed(/leads out of \/tools$/));
  }
});
