import { expect, test } from 'vitest';
import { ModelError } from './model-error.ts';

test.each([
  // OpenAI: chat completions, Responses; vLLM and other servers repeat the first one.
  "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
  'Your input exceeds the context window of this model. Please adjust your input and try again.',
  // Anthropic
  'prompt is too long: 210000 tokens > 200000 maximum',
  'input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000',
  // Google
  'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).',
])('recognizes a request that is too long: %s', (message) => {
  expect(new ModelError('bad_request', message).isTooLong).toBe(true);
  expect(new ModelError('overloaded', message).isTooLong).toBe(false);
});

test('other invalid requests are not too long', () => {
  expect(new ModelError('bad_request', 'messages: text content blocks must be non-empty').isTooLong).toBe(false);
});
