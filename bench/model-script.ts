/** The output of the model `talk`: this many words, one every `WORD_MS` milliseconds. */
export const WORDS = 100;
export const WORD_MS = 100;

/** How long a tool takes that the model `wait-<ms>` calls. */
export const TOOL_MS = 20;
