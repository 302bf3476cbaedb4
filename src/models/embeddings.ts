import { LRUCache } from 'lru-cache';
import { ConfigError, type Config } from '../config.ts';
import { sha256 } from '../lib/hash.ts';
import { KeyedSemaphore } from '../lib/keyed-semaphore.ts';
import { ModelError } from './model-error.ts';
import type { ModelAccess } from './open-providers.ts';
import { createEmbed, MAX_BATCH, type Embed } from './openai/embeddings.ts';
import type { ModelProviders } from './providers.ts';
import { addressOf } from './wrong-address.ts';

/** Vectors of 3,072 numbers for 5,000 texts. */
const MAX_CACHE_BYTES = 64 * 1024 * 1024;

/** The hash of a text, and what the cache itself needs for an entry. */
const ENTRY_BYTES = 256;

/** How many requests of this process run at once. */
const MAX_REQUESTS = 4;

/** The embeddings of one model. `of` caches those of texts in this process, since tools rarely change. */
export class Embeddings {
  /** As the setting names it. */
  readonly name: string;
  /** Host and port; undefined for a provider at its own address. */
  readonly address: string | undefined;
  /** Calls the model, without the cache. */
  readonly embed: Embed;
  /** By the hash of the text. All are of one model: a process has one. */
  readonly #kept: LRUCache<string, Float32Array>;
  readonly #requests = new KeyedSemaphore(MAX_REQUESTS);

  constructor(
    { name, address, embed }: Pick<Embeddings, 'name' | 'address' | 'embed'>,
    { maxBytes = MAX_CACHE_BYTES } = {},
  ) {
    this.name = name;
    this.address = address;
    this.embed = embed;
    this.#kept = new LRUCache({ maxSize: maxBytes, sizeCalculation: ({ byteLength }) => byteLength + ENTRY_BYTES });
  }

  /**
   * The embeddings of texts, in their order, with the length 1. Embeddings that arrived before a failure are cached, so
   * that another attempt requests only the rest.
   * @throws ModelError, or an AbortError if `signal` is aborted
   */
  async of(texts: readonly string[], signal: AbortSignal): Promise<Float32Array[]> {
    const keys = texts.map(sha256);
    const found = new Map<string, Float32Array | undefined>(keys.map((key) => [key, this.#kept.get(key)]));
    const missing = new Map(keys.flatMap((key, i) => (found.get(key) ? [] : [[key, texts[i] ?? '']])));
    // One after the other: a search for many tools takes no more of the requests at once than others do.
    for (const batch of batchesOf([...missing])) {
      const ask = () => {
        signal.throwIfAborted();
        return this.embed(
          batch.map(([, text]) => text),
          signal,
        );
      };
      const vectors = await this.#requests.run('', ask);
      for (const [i, [key]] of batch.entries()) {
        found.set(key, vectors[i]);
        this.#kept.set(key, vectors[i]);
      }
    }
    const vectors = keys.flatMap((key) => found.get(key) ?? []);
    if (vectors.every(({ length }) => length === vectors[0]?.length)) return vectors;
    // The server now has another model under the name.
    this.#kept.clear();
    throw new ModelError('broken_stream', 'the embeddings of the model have another length than they had before');
  }
}

function batchesOf<T>(items: T[]): T[][] {
  const count = Math.ceil(items.length / MAX_BATCH);
  return Array.from({ length: count }, (_, i) => items.slice(i * MAX_BATCH, (i + 1) * MAX_BATCH));
}

const SETTING = 'EVERTURN_EMBEDDING_MODEL';

/**
 * The embeddings of the model that the setting names; undefined if it names none.
 * @throws ConfigError if there is no such provider, or it has another protocol than OpenAI's
 */
export function openEmbeddings(
  { embeddingModel: name, model: { idleSeconds } }: Pick<Config, 'embeddingModel' | 'model'>,
  { providers }: ModelAccess,
  models: Pick<ModelProviders, 'prefixProblem' | 'resolve'>,
): Embeddings | undefined {
  if (name === undefined) return undefined;
  const problem = models.prefixProblem(name);
  if (problem !== undefined) throw new ConfigError(`${SETTING}: ${problem}`);
  const { providerName, model, baseUrl } = models.resolve(name);
  const provider = providers.get(providerName);
  if (provider?.kind !== 'openai-chat' && provider?.kind !== 'openai-responses') {
    throw new ConfigError(
      `${SETTING}: the provider ${providerName} has the kind ${provider?.kind}: name a model of a provider of the kind ` +
        'openai-chat, openai-compatible or openai-responses',
    );
  }
  return new Embeddings({
    name,
    address: addressOf({ baseUrl }),
    embed: createEmbed(model, { idleSeconds, ...provider }),
  });
}
