import { expect, test } from 'vitest';
import { NEVER } from '../lib/abort.ts';
import { guardedAnswer } from './guarded-answer.ts';
import type { ModelChunk } from './provider.ts';

test('an answer whose audio does not end is given up', async () => {
  const data = 'A'.repeat(1024 * 1024);
  let sent = 0;
  // oxlint-disable-next-line typescript/require-await -- as a provider sends it
  async function* endless(): AsyncGenerator<ModelChunk> {
    for (;;) {
      sent += 1;
      yield { audio: { data } };
    }
  }
  const options = { signal: NEVER, idleMs: 5_000, failureOf: (error: unknown) => error };
  await expect(Array.fromAsync(guardedAnswer(options, endless))).rejects.toMatchObject({
    failure: 'bad_request',
    message: expect.stringContaining('characters of audio and images'),
  });
  expect(sent).toBe(11);
});
