/** The output of the model `talk`: this many words, one every `WORD_MS` milliseconds. */
export const WORDS = 100;
export const WORD_MS = 100;
