import { expect, test } from 'vitest';
import { MadeMedia } from './made-media.ts';

test('a message has at most 64 images', () => {
  const media = new MadeMedia();
  const image = { mimeType: 'image/png', base64: '' };
  for (let i = 0; i < 64; i++) media.add({ image });
  expect(() => media.add({ image })).toThrow('more than 64 images');
});
