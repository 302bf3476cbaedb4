import type { ModelMessage } from '../core/records/message.ts';
import type { Usage } from '../core/records/usage.ts';
import type { IndexedItem, TranscriptItem } from '../core/transcript.ts';
import { TOKEN_CHARACTERS } from './input-breakdown.ts';
import { MIN_CONTEXT_TOKENS, type ModelTarget } from './providers.ts';
import type { ModelRequest } from './provider.ts';

/** The usage that a model reported with its last message of a conversation, and the items that were added since. */
export interface EarlierReport {
  usage: Usage;
  added: TranscriptItem[];
}

/**
 * The usage that was reported with the last message, and the items that were added since. Undefined if the usage does
 * not show the size of the message's request: it is that of several attempts, or the conversation was compacted since.
 * `compactedAt`: the index of the last compaction.
 */
export function lastReport(
  request: ModelRequest,
  conversation: IndexedItem[],
  compactedAt: number,
): (EarlierReport & { message: ModelMessage }) | undefined {
  const index = conversation.findLastIndex(({ item }) => item.role === 'assistant');
  const last = conversation[index];
  if (last?.item.role !== 'assistant' || last.at <= compactedAt) return undefined;
  const { message } = last.item;
  if (!message.usage || message.usage.inputTokens === 0 || message.attempts) return undefined;
  const added = request.transcript.slice(request.transcript.length - (conversation.length - 1 - index));
  return { usage: message.usage, added, message };
}

export function isBy({ provider, model }: ModelMessage, target: ModelTarget): boolean {
  return provider === target.providerName && model === target.model;
}

/** Below this share of its estimate, an input was not read as a whole: texts have at most about 6 characters per token. */
const FAR_BELOW = 1 / 2;

/** The same for an input that is level: English has up to 5 characters per token, and the estimate counts 4. */
const BELOW = 3 / 4;

/** An input is level if it grew by less than this share of what was added, which has at least so many tokens. */
const LEVEL = 1 / 4;
const MIN_ADDED_TOKENS = 500;

/**
 * The input in tokens that a server has read, if it has dropped the beginning of a conversation without an error, as
 * Ollama does; undefined if its report does not show this. A report shows it if it is far below the estimate, or if it
 * is below and has not grown with the conversation. Differences that have other reasons do not count:
 *
 * - Mocks report zeros, or the same small number for every request. No window is as small.
 * - Some gateways leave cached tokens out of the input. They are added, twice for servers that include them: then
 *   nothing is noticed.
 * - Tokens of images, files and tools are counted in many ways. The estimate is that of the texts alone.
 * - Runs of spaces, and of one character, are a few tokens.
 * - The earlier report may have had thoughts and searches that are not sent again. So a level input is compared with
 *   the estimate, too.
 */
export function truncatedInput(
  { system, transcript }: Pick<ModelRequest, 'system' | 'transcript'>,
  usage: Usage,
  earlier: EarlierReport | undefined,
): number | undefined {
  const read = readTokens(usage);
  if (read < MIN_CONTEXT_TOKENS) return undefined;
  const texts = [system, ...transcript.flatMap(textsOf)];
  // Most inputs end here, without a look at each character.
  if (read >= BELOW * tokensOf(texts)) return undefined;
  const sent = tokensOf(texts.map(withoutRuns));
  const readBefore = earlier ? readTokens(earlier.usage) : 0;
  const isTruncated = read < FAR_BELOW * sent || (read < BELOW * sent && isLevel(read, readBefore, earlier));
  return isTruncated ? Math.max(read, readBefore) : undefined;
}

function isLevel(read: number, readBefore: number, earlier: EarlierReport | undefined): boolean {
  const added = tokensOf((earlier?.added ?? []).flatMap(textsOf).map(withoutRuns));
  return added >= MIN_ADDED_TOKENS && read < readBefore + LEVEL * added;
}

function readTokens({ inputTokens, cacheReadTokens, cacheWriteTokens }: Usage): number {
  return inputTokens + cacheReadTokens + cacheWriteTokens;
}

function tokensOf(texts: string[]): number {
  return texts.reduce((sum, { length }) => sum + length, 0) / TOKEN_CHARACTERS;
}

function withoutRuns(text: string): string {
  return text.replaceAll(/\s+|(.)\1{3,}/gs, ' ');
}

function textsOf(item: TranscriptItem): string[] {
  switch (item.role) {
    case 'user':
      return item.content.flatMap((part) => (part.type === 'text' ? part.text : []));
    case 'assistant':
      return [item.message.content, ...item.message.toolCalls.map((call) => call.arguments)];
    case 'tool':
      return [item.content];
  }
}
