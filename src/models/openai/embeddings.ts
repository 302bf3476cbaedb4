import { z } from 'zod';
import { ModelError } from '../model-error.ts';
import type { ProviderAccess, SilenceLimits } from '../provider.ts';
import { createOpenAIClient, openAIFailure } from './client.ts';

/** How many texts one request has at most. */
export const MAX_BATCH = 32;

/** The largest of the models in use return this many numbers for a text. */
const MAX_DIMENSIONS = 4_096;

/** For each number, and for what is around them. */
const MAX_VALUES = MAX_BATCH * (MAX_DIMENSIONS + 10);

/**
 * The embeddings of at most `MAX_BATCH` texts, in their order and with the length 1, so that the cosine of the angle
 * between two of them is the sum of their products.
 * @throws ModelError, or the client's error if `signal` is aborted
 */
export type Embed = (texts: readonly string[], signal: AbortSignal) => Promise<Float32Array[]>;

/** Embeddings as OpenAI and many others offer them: https://platform.openai.com/docs/api-reference/embeddings */
export function createEmbed(model: string, options: ProviderAccess & Pick<SilenceLimits, 'idleSeconds'>): Embed {
  const { client } = createOpenAIClient(options, { maxValues: MAX_VALUES });
  return async (texts, signal) => {
    // Not all servers support the other format, base64, which the client requests by default.
    const body = { model, input: [...texts], encoding_format: 'float' as const };
    const response: unknown = await client.embeddings.create(body, { signal }).catch((error: unknown) => {
      throw openAIFailure(error);
    });
    return vectorsIn(response, texts.length);
  };
}

/** Numbers are checked one by one in `unitVector`: a schema would collect an issue for each that is wrong. */
const item = z.object({ index: z.int(), embedding: z.custom<unknown[]>((value) => Array.isArray(value)) });

/** @throws ModelError unless the response has one vector for each text, all of the same length */
function vectorsIn(response: unknown, count: number): Float32Array[] {
  const data = z.array(z.unknown()).length(count).pipe(z.array(item));
  const parsed = z.object({ data }).safeParse(response);
  if (!parsed.success) throw noEmbeddings(`a list of ${count} embeddings, each with an index, was expected`);
  const byIndex = new Map(parsed.data.data.map(({ index, embedding }) => [index, embedding]));
  const vectors = Array.from({ length: count }, (_, index) => unitVector(byIndex.get(index) ?? []));
  if (vectors.some(({ length }) => length !== vectors[0]?.length)) throw noEmbeddings('their lengths differ');
  return vectors;
}

function unitVector(values: readonly unknown[]): Float32Array {
  if (values.length === 0 || values.length > MAX_DIMENSIONS) {
    throw noEmbeddings(`one has ${values.length} numbers, and 1 to ${MAX_DIMENSIONS} were expected`);
  }
  const numbers = values.filter((value) => typeof value === 'number');
  const length = Math.sqrt(numbers.reduce((sum, value) => sum + value * value, 0));
  // The sum of squares is not finite either if a number is not, which JSON can have as 1e999.
  if (numbers.length < values.length || !Number.isFinite(length) || length === 0) {
    throw noEmbeddings('one is not a list of finite numbers, or has only zeros');
  }
  return Float32Array.from(numbers, (value) => value / length);
}

function noEmbeddings(reason: string): ModelError {
  return new ModelError('broken_stream', `the answer of the model has no embeddings that can be used: ${reason}`);
}
