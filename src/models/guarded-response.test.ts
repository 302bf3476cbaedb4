import { afterEach, describe, expect, test, vi } from 'vitest';
import { NEVER_ABORTED } from '../lib/abort.ts';
import { guardedResponse, type RequestGuard } from './guarded-response.ts';
import type { ModelError } from './model-error.ts';
import { MAX_SILENCE_SECONDS, type ModelChunk } from './provider.ts';

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
  const options = {
    signal: NEVER_ABORTED,
    silence: { firstChunkSeconds: 5, idleSeconds: 5 },
    stalls: 0,
    failureOf: (error: unknown) => error,
  };
  await expect(Array.fromAsync(guardedResponse(options, endless))).rejects.toMatchObject({
    failure: 'bad_request',
    message: expect.stringContaining('characters of audio and images'),
  });
  expect(sent).toBe(11);
});

describe('silence', () => {
  afterEach(() => vi.useRealTimers());

  /** After how many seconds of silence a model is given up that has sent these chunks. */
  async function patience(chunks: ModelChunk[], stalls?: number): Promise<[seconds: number, message: string]> {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
    async function* silent({ controller }: { controller: AbortController }): AsyncGenerator<ModelChunk> {
      yield* chunks;
      await new Promise((resolve) => controller.signal.addEventListener('abort', resolve));
    }
    const options = {
      signal: NEVER_ABORTED,
      silence: { firstChunkSeconds: 600, idleSeconds: 45 },
      stalls,
      failureOf: String,
    };
    const since = Date.now();
    const reading = Array.fromAsync(guardedResponse(options, silent)).then(
      () => [0, ''] satisfies [number, string],
      (error: ModelError) => [(Date.now() - since) / 1000, error.message] satisfies [number, string],
    );
    await vi.runAllTimersAsync();
    return reading;
  }

  test.each<[string, number, ModelChunk[]]>([
    ['nothing yet', 600, []],
    ['the beginning of a thought that is not shown', 600, [{ begins: 'reasoning' }, { providerFields: {} }, {}]],
    ['a piece of the answer', 45, [{ content: 'I' }]],
    ['a thought', 45, [{ begins: 'reasoning' }, { reasoning: 'hm' }]],
    ['a call', 45, [{ toolCalls: [] }]],
  ])('after %s is borne for %i seconds', async (_what, seconds, chunks) => {
    expect(await patience(chunks)).toEqual([seconds, `the model sent nothing for ${seconds} seconds`]);
  });

  test('is borne for twice as long after each attempt that was silent', async () => {
    expect(await patience([], 1)).toEqual([1_200, 'the model sent nothing for 1200 seconds']);
    expect(await patience([{ content: 'I' }], 2)).toEqual([180, 'the model sent nothing for 180 seconds']);
  });

  test('is never borne for longer than the longest setting', async () => {
    expect(await patience([], 100)).toEqual([MAX_SILENCE_SECONDS, expect.any(String)]);
  });

  test('ends with each byte, also of a comment', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
    const bytes = Array.from({ length: 5 }, () => new TextEncoder().encode(': still here\n\n'));
    const body = new ReadableStream<Uint8Array>({
      async pull(stream) {
        await new Promise((resolve) => setTimeout(resolve, 40_000));
        const next = bytes.pop();
        if (next) stream.enqueue(next);
        else stream.close();
      },
    });
    async function* slow({ controller, watch }: RequestGuard): AsyncGenerator<ModelChunk> {
      yield { content: 'I' };
      await watch(new Response(body)).arrayBuffer();
      controller.signal.throwIfAborted();
      yield { finishReason: 'stop' };
    }
    const options = { signal: NEVER_ABORTED, silence: { firstChunkSeconds: 45, idleSeconds: 45 }, failureOf: String };
    const reading = Array.fromAsync(guardedResponse({ ...options, stalls: 0 }, slow));
    await vi.runAllTimersAsync();
    expect(await reading).toEqual([{ content: 'I' }, { finishReason: 'stop' }]);
  });
});
