import { expect, test } from 'vitest';
import { readContent, resourceBlocks } from './read-content.ts';

const said = { type: 'text', text: 'yes' };

test('parts with all of their fields are read, without other fields', () => {
  const content = [
    { ...said, annotations: { audience: 7 } },
    { type: 'image', data: 'not base64!' },
    { type: 'resource', resource: { uri: 'a:b', mimeType: 'image/png', blob: 'AAAA', text: null } },
    { type: 'resource', resource: { text: 'c', mimeType: 7 } },
    { type: 'resource_link', uri: 'a:b', name: 1 },
  ];
  expect(readContent(content)).toEqual([
    said,
    { type: 'image', data: 'not base64!', mimeType: '' },
    { type: 'resource', resource: { uri: 'a:b', mimeType: 'image/png', blob: 'AAAA' } },
    { type: 'resource', resource: { uri: '', text: 'c' } },
    { type: 'resource_link', uri: 'a:b', name: 'a:b' },
  ]);
});

test('one line says what could not be read', () => {
  const odd = [
    { type: 'video', data: '' },
    { type: 'text', text: null },
    null,
    { type: 'text' },
    { type: 'resource' },
    { type: 'resource', resource: { blob: 7 } },
    { type: 'image', data: 7 },
    { type: 'resource_link', name: 'a' },
    { type: 'sound' },
    [said],
  ];
  expect(readContent([said, ...odd, said])).toEqual([
    said,
    said,
    {
      type: 'text',
      text: '[10 of the parts of this result could not be read: "video", "text", no type, "resource", "image"]',
    },
  ]);
  const [note] = readContent([{ type: `x\n${'y'.repeat(100)}` }]);
  expect(note).toEqual({
    type: 'text',
    text: `[1 of the parts of this result could not be read: "x\\n${'y'.repeat(38)}"]`,
  });
});

test('the contents of resources are read as embedded resources', () => {
  const contents = [{ uri: 'a:b', text: 'c' }, 7];
  expect(readContent(resourceBlocks(contents))).toEqual([
    { type: 'resource', resource: { uri: 'a:b', text: 'c' } },
    { type: 'text', text: '[1 of the parts of this result could not be read: "resource"]' },
  ]);
});

test('the first ones of more than 1,000 parts are read', () => {
  const read = readContent(Array.from({ length: 1_500 }, () => said));
  expect(read).toHaveLength(1_001);
  expect(read.at(-1)).toEqual({ type: 'text', text: '[500 more parts of this result were left out]' });
});
