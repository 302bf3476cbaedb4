import type { StoredFile, UserContentPart } from '../core/records/input.ts';
import type { InputBreakdown } from '../core/records/message.ts';
import type { TranscriptItem } from '../core/transcript.ts';
import { memoized } from '../lib/memoized.ts';
import type { ModelRequest } from './provider.ts';

/** The length of a token: about this many characters. */
export const TOKEN_CHARACTERS = 4;

/** An image costs about 1,000 tokens regardless of its size. */
const FILE_CHARACTERS = 4_000;

/** The lengths of the parts of a request, in characters. */
export function inputCharacters(request: ModelRequest): InputBreakdown {
  const { system, instructionsLength, skillsLength, responseFormat, tools, transcript } = request;
  return {
    harness: system.length - instructionsLength - skillsLength,
    skills: skillsLength,
    instructions: instructionsLength + (responseFormat ? jsonLength(responseFormat) : 0),
    toolDefinitions: sum(
      tools.map(({ name, description, parameters }) => name.length + description.length + jsonLength(parameters)),
    ),
    messages: sum(transcript.map(itemCharacters)),
  };
}

/** The tokens of a request, estimated from its characters. */
export function estimateInput(request: ModelRequest): number {
  return Math.ceil(sum(Object.values(inputCharacters(request))) / TOKEN_CHARACTERS);
}

/**
 * Divides a provider's count of input tokens among the parts of the request, in proportion to their characters:
 * providers report one number. The parts add up to `tokens` exactly.
 */
export function breakDown(tokens: number, characters: InputBreakdown): InputBreakdown {
  const all = sum(Object.values(characters));
  let charactersSoFar = 0;
  let tokensSoFar = 0;
  // The cumulative sums are rounded, so the rounding error of one part is carried to the next.
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

export function itemCharacters(item: TranscriptItem): number {
  switch (item.role) {
    case 'user':
      return sum(item.content.map(partCharacters));
    case 'assistant': {
      const { content, refusal, toolCalls, images = [] } = item.message;
      const drawn = images.length * FILE_CHARACTERS;
      return (
        content.length + refusal.length + drawn + sum(toolCalls.map((call) => call.name.length + call.arguments.length))
      );
    }
    case 'tool':
      return item.content.length + sum(item.files.map(partCharacters));
  }
}

function partCharacters(part: UserContentPart | StoredFile): number {
  return part.type === 'text' ? part.text.length : FILE_CHARACTERS;
}

/** Memoized, since schemas are the same objects in every call. */
const jsonLength = memoized((value: object) => JSON.stringify(value).length);

function sum(numbers: number[]): number {
  return numbers.reduce((total, one) => total + one, 0);
}
