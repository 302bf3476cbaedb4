import type { ProviderConfig } from './provider-file.ts';

/** The types of audio that each protocol takes in messages of users, with its own names for them. */
export const AUDIO_INPUT: Record<ProviderConfig['kind'], ReadonlyMap<string, string>> = {
  'openai-chat': new Map([
    ['audio/wav', 'wav'],
    ['audio/mpeg', 'mp3'],
  ]),
  'openai-responses': new Map(),
  anthropic: new Map(),
  google: new Map([
    ['audio/wav', 'audio/wav'],
    ['audio/mpeg', 'audio/mp3'],
    ['audio/flac', 'audio/flac'],
    ['audio/aac', 'audio/aac'],
  ]),
  mistral: new Map(),
};
