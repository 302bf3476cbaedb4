import { pino } from 'pino';
import { expect, test } from 'vitest';
import { pdfOf } from '../../../test/support/pdf.ts';
import { BlobNotFound, type BlobStore } from '../../blobs/blob-store.ts';
import type { StoredFile } from '../../core/records/input.ts';
import { NEVER_ABORTED } from '../../lib/abort.ts';
import { FileTexts, MAX_BEGINNING } from './file-texts.ts';

const scope = { sessionId: 'ses_1', signal: NEVER_ABORTED };

function filesWith(stored: Record<string, Buffer> = {}, lost: string[] = []) {
  const warnings: string[] = [];
  const reads: string[] = [];
  const blobs: Pick<BlobStore, 'get' | 'put'> = {
    put: (_session, bytes) => {
      stored['text'] = Buffer.from(bytes);
      return Promise.resolve('text');
    },
    get: (_session, blob) => {
      reads.push(blob);
      if (lost.includes(blob)) return Promise.reject(new BlobNotFound('ses_1', blob));
      return Promise.resolve(stored[blob] ?? Buffer.alloc(0));
    },
  };
  const log = pino({}, { write: (line: string) => void warnings.push(line) });
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- nothing else of it is used
  return { files: new FileTexts({ blobs: blobs as BlobStore, log }), stored, warnings, reads };
}

const fileOf = (mimeType: string, blob: string, bytes = 1): StoredFile => ({
  type: 'file',
  name: 'f',
  mimeType,
  bytes,
  blob,
});

test('the text of a PDF file is stored, and another attempt does not extract it again', async () => {
  const { files, stored, reads } = filesWith({ pdf: pdfOf(['One']) });
  const file = fileOf('application/pdf', 'pdf');
  const first = await files.extract({ file, kind: 'pdf' }, scope, 20_000);
  expect([first, stored['text']?.toString()]).toEqual([{ file: 'pdf pdf', blob: 'text' }, '[page 1]\nOne']);
  expect(await files.extract({ file, kind: 'pdf' }, scope, 20_000)).toBe(first);
  expect(await files.whole(file, 'ses_1', first)).toMatchObject({ text: '[page 1]\nOne' });
  expect(reads).toEqual(['pdf', 'text']);
});

test('a PDF file that cannot be read is logged, and its reason kept', async () => {
  const { files, warnings } = filesWith({ pdf: Buffer.from('junk') });
  const extracted = await files.extract({ file: fileOf('application/pdf', 'pdf'), kind: 'pdf' }, scope, 20_000);
  expect(extracted).toEqual({ file: 'pdf pdf', problem: expect.stringMatching(/^it is damaged: /) });
  expect(await files.beginning(fileOf('application/pdf', 'pdf'), 'ses_1', extracted)).toEqual(extracted);
  expect(JSON.parse(warnings.join())).toMatchObject({
    msg: 'a file cannot be read',
    sessionId: 'ses_1',
    file: 'pdf pdf',
  });
});

test('the same bytes are read by each type under which they were sent', async () => {
  const { files } = filesWith({ a: Buffer.from('text') });
  expect(await files.beginning(fileOf('audio/mpeg', 'a'), 'ses_1', undefined)).toHaveProperty('problem');
  expect(await files.beginning(fileOf('text/plain', 'a'), 'ses_1', undefined)).toHaveProperty('text', 'text');
});

test('the beginning of a text is read once; one that is too large is not read', async () => {
  const { files, reads } = filesWith({ long: Buffer.alloc(MAX_BEGINNING + 1, 'x') });
  const read = await files.beginning(fileOf('text/plain', 'long'), 'ses_1', undefined);
  expect(read).toEqual({ text: 'x'.repeat(MAX_BEGINNING), characters: MAX_BEGINNING + 1 });
  expect(await files.beginning(fileOf('text/plain', 'long'), 'ses_1', undefined)).toBe(read);
  const large = await files.beginning(fileOf('text/plain', 'huge', 8 * 1024 * 1024 + 1), 'ses_1', undefined);
  expect([large, reads]).toEqual([{ problem: 'it is larger than 8 MB' }, ['long']]);
});

test('a file whose content is lost cannot be read, which is no error: the conversation continues without it', async () => {
  const { files } = filesWith({}, ['lost']);
  const problem = { problem: 'the blob store of the server no longer has it' };
  const pdf = fileOf('application/pdf', 'lost');
  expect(await files.extract({ file: pdf, kind: 'pdf' }, scope, 20_000)).toMatchObject(problem);
  expect(await files.whole(pdf, 'ses_1', { file: 'pdf', blob: 'lost' })).toEqual(problem);
  expect(await files.beginning(fileOf('text/plain', 'lost'), 'ses_1', undefined)).toEqual(problem);
  expect(await files.image(fileOf('image/png', 'lost'), 'ses_1')).toEqual(problem);
});
