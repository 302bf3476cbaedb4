/** What the model `talk` says: so many words, one in so many milliseconds. */
export const WORDS = 100;
export const WORD_MS = 100;
