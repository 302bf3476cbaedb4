import { expect, test } from 'vitest';
import { AUDIO_FORMATS, audioFormat, audioType } from './audio-formats.ts';

test.each(AUDIO_FORMATS)('audio in the format %s keeps it, as a file and back', (format) => {
  expect(audioFormat(audioType(format))).toBe(format);
});

test('other names of a format, and media that are no audio', () => {
  expect(['audio/X-WAV; rate=8000', 'audio/pcmu', 'audio/midi', 'image/png', 'x-audio/wav'].map(audioFormat)).toEqual([
    'wav',
    'mulaw',
    undefined,
    undefined,
    undefined,
  ]);
});
