import { expect, test } from 'vitest';
import { describeFile, isImage, sizeText } from './files.ts';

test('a file is described by its name, its type and its size', () => {
  expect(describeFile({ name: 'a.pdf', mimeType: 'application/pdf', bytes: 2048 })).toBe(
    'a.pdf (application/pdf, 2 KB)',
  );
  const sizes = [0, 1023, 1024, 1023 * 1024, 1024 * 1024, 2.5 * 1024 * 1024];
  expect(sizes.map(sizeText)).toEqual(['0 B', '1023 B', '1 KB', '1023 KB', '1.0 MB', '2.5 MB']);
});

test('only the types that all providers take are images', () => {
  expect(['image/png', 'image/webp', 'image/tiff', 'text/png'].map((mimeType) => isImage({ mimeType }))).toEqual([
    true,
    true,
    false,
    false,
  ]);
});
