import type { Config } from '../config.ts';

/** Where models are, and the key for them. */
export interface ModelAccess {
  /** Who answers for the models: a name for people. */
  name: string;
  openai: { apiKey: string; baseUrl: string | undefined };
}

/** The real models, if there is a key or a server for them. */
export function modelAccess({ openai: { apiKey, baseUrl } }: Pick<Config, 'openai'>): ModelAccess | undefined {
  if (!apiKey && !baseUrl) return undefined;
  // Servers of one's own often want no key, but the client insists on one.
  return { name: baseUrl ?? 'OpenAI', openai: { apiKey: apiKey ?? 'none', baseUrl } };
}
