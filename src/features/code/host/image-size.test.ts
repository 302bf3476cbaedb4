import { expect, test } from 'vitest';
import { longerSide } from './image-size.ts';

const bytes = (...parts: (string | number[])[]) =>
  Buffer.concat(parts.map((part) => (typeof part === 'string' ? Buffer.from(part, 'latin1') : Buffer.from(part))));

const riff = (kind: string, ...rest: number[]) => bytes('RIFF\0\0\0\0WEBP', kind, rest);

test.each<[string, Buffer, number | undefined]>([
  ['PNG', bytes('\x89PNG\r\n\x1a\n\0\0\0\rIHDR', [0, 0, 2, 1, 0, 0, 1, 0]), 513],
  [
    'PNG as tall as its format allows',
    bytes('\x89PNG\r\n\x1a\n\0\0\0\rIHDR', [0, 0, 0, 1, 255, 255, 255, 255]),
    2 ** 32 - 1,
  ],
  ['GIF', bytes('GIF89a', [1, 0, 3, 1]), 259],
  ['JPEG', bytes('\xff\xd8', '\xff\xe0\0\x04ab', '\xff\xff\xc4\0\x02', '\xff\xc2\0\x0b\x08', [1, 2, 3, 4]), 772],
  ['WebP, lossy', riff('VP8 ', ...Array<number>(10).fill(0), 2, 0x41, 1, 0), 258],
  ['WebP, lossless', riff('VP8L', 0, 0, 0, 0, 0x2f, 0xff, 0xff, 0xff, 0x0f), 16_384],
  ['WebP, extended', riff('VP8X', 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0), 257],
  ['nothing', bytes(), undefined],
  ['a PNG that is cut off', bytes('\x89PNG\r\n\x1a\n\0\0\0\rIHDR'), undefined],
  ['a JPEG without a frame', bytes('\xff\xd8', '\xff\xe0\0\x04ab', 'end'), undefined],
  ['another format', bytes('II*\0', Array<number>(40).fill(1)), undefined],
])('the longer side of %s', (_, image, side) => {
  expect(longerSide(image)).toBe(side);
});

test('the size of a JPEG whose segments have no length is found in a time that is bounded by its bytes', () => {
  const markers = bytes('\xff\xd8', Array.from({ length: 1_000_000 }, () => [0xff, 0xe0, 0, 0]).flat());
  expect(longerSide(markers)).toBeUndefined();
});
