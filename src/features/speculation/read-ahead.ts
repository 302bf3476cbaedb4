import type { ModelChunk } from '../../models/provider.ts';

export type Part = { chunk: ModelChunk } | { error: unknown };

/** Reads a model's response as it arrives, before it has a reader. The bounds of responses limit the buffered parts. */
export function readAhead(chunks: AsyncIterable<ModelChunk>): ReadableStream<Part> {
  // An error is enqueued, because a failed stream drops its queue, and the chunks before the failure are used.
  return new ReadableStream<Part>({
    async start(controller) {
      try {
        for await (const chunk of chunks) controller.enqueue({ chunk });
      } catch (error) {
        controller.enqueue({ error });
      }
      controller.close();
    },
  });
}

export async function* chunksOf(parts: ReadableStream<Part>): AsyncGenerator<ModelChunk> {
  for await (const part of parts) {
    if ('error' in part) throw part.error;
    yield part.chunk;
  }
}
