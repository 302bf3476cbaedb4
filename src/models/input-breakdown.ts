import type { InputBreakdown, StoredFile, UserContentPart } from '../core/records.ts';
import type { TranscriptItem } from '../core/transcript.ts';
import type { ModelRequest } from './provider.ts';

/** An image or a document costs about a thousand tokens, whatever its size, and a token is about four characters. */
const FILE_CHARACTERS = 4_000;

/** How long the parts of a request are, in characters. */
export function inputCharacters(request: ModelRequest): InputBreakdown {
  const { system, instructionsLength, responseFormat, tools, transcript } = request;
  return {
    harness: system.length - instructionsLength,
    skills: 0,
    instructions: instructionsLength + (responseFormat ? jsonLength(responseFormat) : 0),
    toolDefinitions: sum(
      tools.map(({ name, description, parameters }) => name.length + description.length + jsonLength(parameters)),
    ),
    messages: sum(transcript.map(itemCharacters)),
  };
}

/**
 * Divides a provider's count of input tokens among the parts of the request, in proportion to their characters:
 * providers report one number. The parts add up to `tokens` exactly.
 */
export function breakDown(tokens: number, characters: InputBreakdown): InputBreakdown {
  const all = sum(Object.values(characters));
  let charactersSoFar = 0;
  let tokensSoFar = 0;
  // Rounded are the sums from the first part on, so what one part loses the next one gets.
  const share = (part: number): number => {
    charactersSoFar += part;
    const upTo = all === 0 ? 0 : Math.round((tokens * charactersSoFar) / all);
    const own = upTo - tokensSoFar;
    tokensSoFar = upTo;
    return own;
  };
  return {
    harness: share(characters.harness),
    skills: share(characters.skills),
    instructions: share(characters.instructions),
    toolDefinitions: share(characters.toolDefinitions),
    messages: tokens - tokensSoFar,
  };
}

function itemCharacters(item: TranscriptItem): number {
  switch (item.role) {
    case 'user':
      return sum(item.content.map(partCharacters));
    case 'assistant': {
      const { content, refusal, toolCalls } = item.message;
      return content.length + refusal.length + sum(toolCalls.map((call) => call.name.length + call.arguments.length));
    }
    case 'tool':
      return item.content.length + sum(item.files.map(partCharacters));
  }
}

function partCharacters(part: UserContentPart | StoredFile): number {
  if (part.type === 'text') return part.text.length;
  return part.mimeType.startsWith('text/') ? part.bytes : FILE_CHARACTERS;
}

/** Of schemas, which stay the same from call to call. */
const LENGTHS = new WeakMap<object, number>();

function jsonLength(value: object): number {
  const length = LENGTHS.get(value) ?? JSON.stringify(value).length;
  LENGTHS.set(value, length);
  return length;
}

function sum(numbers: number[]): number {
  return numbers.reduce((total, one) => total + one, 0);
}
