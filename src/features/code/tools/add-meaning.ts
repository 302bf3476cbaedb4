import { errorMessage } from '../../../lib/errors.ts';
import { mapInTurns } from '../../../lib/map-in-turns.ts';
import type { OnceLog } from '../../../lib/once-log.ts';
import type { Embeddings } from '../../../models/embeddings.ts';
import { ModelError } from '../../../models/model-error.ts';
import type { RankedTool } from '../../../tools/rank-tools.ts';

/** The services that rank tools by meaning. */
export interface MeaningSources {
  /** Undefined if this process has no model for embeddings. */
  embeddings: Pick<Embeddings, 'name' | 'of'> | undefined;
  losses: Pick<OnceLog, 'warn'>;
}

/** How long a search waits for embeddings, before it returns the ranking by words. */
const MAX_MS = 10_000;

/** More tools are ranked by words alone: their embeddings may not fit into the cache, so each search would pay for all. */
const MAX_TOOLS = 2_000;

/** The characters of a text that are embedded. Small models take 512 tokens; many servers reject longer texts. */
const MAX_LENGTH = 1_000;

/** The number of tools that count as near a query: those at the end of a ranking by meaning are unrelated. */
const MAX_NEAR = 20;

/** The weight of the first ranks in a fusion. */
const RANK_CONSTANT = 60;

interface Ranking<T> {
  query: string;
  tools: readonly T[];
  /** The tools that match by words, best first. */
  byWords: T[];
}

interface MeaningOptions extends MeaningSources {
  signal: AbortSignal;
  maxMs?: number;
}

/**
 * The tools that match a query by words or by meaning, best first. If the model for embeddings cannot be used, or is
 * too slow, the result is `byWords`, and each kind of failure is logged once.
 * @throws the reason of the signal
 */
export async function addMeaning<T extends RankedTool>(
  { query, tools, byWords }: Ranking<T>,
  { embeddings, losses, signal, maxMs = MAX_MS }: MeaningOptions,
): Promise<T[]> {
  if (tools.length === 0) return byWords;
  const warn = (kind: string, reason: string): T[] => {
    const fields = { model: embeddings?.name, reason };
    losses.warn(`embeddings: ${kind}`, fields, 'tools are searched by words alone, and not by meaning');
    return byWords;
  };
  if (!embeddings) return warn('unset', 'EVERTURN_EMBEDDING_MODEL is not set in this process');
  if (tools.length > MAX_TOOLS) return warn('many', `an agent has more than ${MAX_TOOLS} tools that are searched`);
  const late = AbortSignal.timeout(maxMs);
  try {
    const texts = [query, ...tools.map(textOf)].map((text) => text.slice(0, MAX_LENGTH).toWellFormed());
    const [vector = new Float32Array(), ...vectors] = await embeddings.of(texts, AbortSignal.any([signal, late]));
    // The vectors of 2,000 tools have up to 8 million numbers.
    const scores = await mapInTurns(vectors, (one) => cosine(vector, one));
    const scored = tools.map((tool, i) => ({ tool, score: scores[i] ?? 0 }));
    const near = scored.filter(({ score }) => score > 0).toSorted((a, b) => b.score - a.score);
    return fused([byWords, near.slice(0, MAX_NEAR).map(({ tool }) => tool)]);
  } catch (error) {
    signal.throwIfAborted();
    if (late.aborted) return warn('late', `the model has not answered within ${maxMs / 1000} s`);
    return warn(error instanceof ModelError ? error.failure : 'other', errorMessage(error));
  }
}

/** The text of a tool, with its original name: names for the model may begin with the server's name. */
function textOf({ info, description }: RankedTool): string {
  return `${info.name}: ${description}`;
}

/** The cosine similarity of vectors of length 1. */
function cosine(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] ?? 0) * (b[i] ?? 0);
  return sum;
}

/**
 * Fuses rankings by the ranks alone, since scores by words and by meaning have no common scale: reciprocal rank fusion
 * with its authors' constant (Cormack, Clarke and Büttcher, SIGIR 2009, https://doi.org/10.1145/1571941.1572114).
 */
export function fused<T>(rankings: readonly (readonly T[])[]): T[] {
  const scores = new Map<T, number>();
  for (const ranking of rankings) {
    for (const [i, one] of ranking.entries()) scores.set(one, (scores.get(one) ?? 0) + 1 / (RANK_CONSTANT + i + 1));
  }
  return [...scores].toSorted(([, a], [, b]) => b - a).map(([one]) => one);
}
