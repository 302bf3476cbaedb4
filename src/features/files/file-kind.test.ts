import { expect, test } from 'vitest';
import { decodeText, imageTypeOf, kindOf } from './file-kind.ts';

test.each([
  ['image', 'image/png image/jpeg image/tiff'],
  ['text', 'text/plain text/x-python application/json application/ld+json image/svg+xml application/xml'],
  ['text', 'application/x-yaml application/javascript application/x-sh application/x-ndjson application/sql'],
  ['pdf', 'application/pdf'],
  ['unknown', 'application/octet-stream'],
  ['docx', 'application/vnd.openxmlformats-officedocument.wordprocessingml.document'],
  ['zip', 'application/zip application/x-zip-compressed'],
  ['other', 'application/gzip audio/mpeg application/vnd.ms-excel constructor'],
])('%s: %s', (kind, types) => {
  for (const mimeType of types.split(' ')) expect(kindOf({ mimeType }), mimeType).toBe(kind);
});

test('texts are decoded by their byte order mark, as UTF-8, or as Windows-1252', () => {
  const hex = (bytes: string) => decodeText(Buffer.from(bytes, 'hex'), 'text');
  expect([hex('efbbbf61'), hex('fffe6100e900'), hex('feff006100e9'), hex('c3a9'), hex('80e9'), hex('')]).toEqual([
    'a',
    'aé',
    'aé',
    'é',
    '€é',
    '',
  ]);
  expect([hex('6100'), decodeText(Buffer.from([0xe9]), 'unknown')]).toEqual([undefined, undefined]);
});

test('an image has the type of its first bytes', () => {
  const typeOf = (start: string) => imageTypeOf(Buffer.from(`${start}more`, 'latin1'));
  expect([
    typeOf('\x89PNG\r\n\x1a\n'),
    typeOf('\xff\xd8\xff\xe0'),
    typeOf('GIF89a'),
    typeOf('RIFF\0\0\0\0WEBP'),
  ]).toEqual(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);
  expect([typeOf(''), typeOf('II*\0'), typeOf('RIFF\0\0\0\0WAVE'), typeOf('PNG')]).toEqual(Array(4).fill(undefined));
});
