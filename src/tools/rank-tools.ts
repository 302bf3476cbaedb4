import { mapInTurns } from '../lib/map-in-turns.ts';
import type { AgentTool } from './toolset.ts';

/** The weight of a word by the field in which it occurs. */
const WEIGHTS = { name: 4, server: 2, parameter: 1, description: 1 };

/** The weight of a word that is a prefix of another, as in `invoice` and `invoices`, or `repo` and `repository`. */
const PREFIX_MATCH = 0.5;
const MIN_PREFIX_LENGTH = 3;

/** The constants of Okapi BM25: term frequency saturation and length normalization. */
const K1 = 1.2;
const B = 0.75;

/** The fields of a tool that are read. */
export type RankedTool = Pick<AgentTool, 'name' | 'description' | 'parameters' | 'info'>;

/** A tool as a bag of words, each with the sum of its weights. */
interface Bag {
  words: Map<string, number>;
  length: number;
}

/**
 * Returns the tools that match a query, best first: Okapi BM25 over names, descriptions, parameters and servers, with
 * prefix matches in both directions. A tool whose exact name is the query ranks first.
 */
export async function rankTools<T extends RankedTool>(tools: readonly T[], query: string): Promise<T[]> {
  const words = [...new Set(wordsOf(query))];
  // Servers may have 50,000 tools.
  const read = await mapInTurns(tools, (tool) => {
    const bag = bagOf(tool);
    return { tool, length: bag.length, weights: words.map((word) => weightOf(word, bag.words)) };
  });
  const average = read.reduce((sum, { length }) => sum + length, 0) / read.length;
  const scores = new Map<T, number>();
  for (const i of words.keys()) {
    const matches = read
      .map(({ tool, length, weights }) => ({ tool, length, weight: weights[i] ?? 0 }))
      .filter(({ weight }) => weight > 0);
    const rarity = Math.log(1 + (read.length - matches.length + 0.5) / (matches.length + 0.5));
    for (const { tool, weight, length } of matches) {
      const gain = (weight * (K1 + 1)) / (weight + K1 * (1 - B + (B * length) / average));
      scores.set(tool, (scores.get(tool) ?? 0) + rarity * gain);
    }
  }
  for (const tool of tools) if ([tool.name, tool.info.name].includes(query.trim())) scores.set(tool, Infinity);
  return [...scores].toSorted(([, a], [, b]) => (a === b ? 0 : b - a)).map(([tool]) => tool);
}

function bagOf(tool: RankedTool): Bag {
  const words = new Map<string, number>();
  const add = (text: string, weight: number): void => {
    for (const word of wordsOf(text)) words.set(word, (words.get(word) ?? 0) + weight);
  };
  add(tool.info.name, WEIGHTS.name);
  if (tool.info.type === 'mcp') add(tool.info.serverName, WEIGHTS.server);
  add(tool.description, WEIGHTS.description);
  const { properties } = tool.parameters;
  if (typeof properties === 'object' && properties !== null) add(Object.keys(properties).join(' '), WEIGHTS.parameter);
  return { words, length: [...words.values()].reduce((sum, weight) => sum + weight, 0) };
}

function weightOf(word: string, words: Map<string, number>): number {
  const exact = words.get(word) ?? 0;
  if (exact > 0) return exact;
  let weight = 0;
  for (const [other, its] of words) {
    const isPrefix = other.startsWith(word) || word.startsWith(other);
    if (isPrefix && Math.min(word.length, other.length) >= MIN_PREFIX_LENGTH) weight += its * PREFIX_MATCH;
  }
  return weight;
}

/** Only this much of a text is segmented, which takes seconds for megabytes. */
const MAX_LENGTH = 1_000;

const segmenter = new Intl.Segmenter(undefined, { granularity: 'word' });

/** Splits text into words of any language, also inside `snake_case`, `kebab-case` and `camelCase`. */
function wordsOf(text: string): string[] {
  const spaced = text
    .slice(0, MAX_LENGTH)
    .replaceAll(/([\p{Ll}\d])(\p{Lu})/gu, '$1 $2')
    .replaceAll('_', ' ');
  return [...segmenter.segment(spaced)].flatMap(({ segment, isWordLike }) =>
    isWordLike ? [segment.toLowerCase()] : [],
  );
}
