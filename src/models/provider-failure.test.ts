import { describe, expect, test } from 'vitest';
import type { ModelFailure } from './model-error.ts';
import { reportedFailure } from './provider-failure.ts';
import { LLAMA_CPP_TOO_LONG } from '../../test/support/model-servers.ts';

/** The body of an error response, as it was captured; `source`: where. */
interface Captured {
  from: string;
  status: number;
  error: { message: string; [field: string]: unknown };
  contextTokens?: number;
}

const TOO_LONG: Captured[] = [
  {
    from: 'llama.cpp (llama-server b1-0c1e570, captured)',
    status: 400,
    error: LLAMA_CPP_TOO_LONG,
    contextTokens: 4096,
  },
  {
    from: 'OpenAI, chat completions; vLLM has the text with the type BadRequestError and the code 400',
    status: 400,
    error: {
      message:
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
      type: 'invalid_request_error',
      param: 'messages',
      code: 'context_length_exceeded',
    },
    contextTokens: 128_000,
  },
  {
    from: 'OpenAI, gpt-5 (cline/cline#5474, bytedance/deer-flow#721)',
    status: 400,
    error: {
      message:
        'Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 285386 tokens. Please ' +
        'reduce the length of the messages.',
      type: 'invalid_request_error',
      param: null,
      code: 'context_length_exceeded',
    },
    contextTokens: 272_000,
  },
  {
    from: 'OpenAI, Responses',
    status: 400,
    error: {
      message: 'Your input exceeds the context window of this model. Please adjust your input and try again.',
      type: 'invalid_request_error',
      param: 'input',
      code: 'context_length_exceeded',
    },
  },
  {
    from: 'LiteLLM 1.108.7 (captured)',
    status: 400,
    error: {
      message:
        'litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - too many. ' +
        'context_window_fallbacks=None. Received Model Group=mock',
      type: null,
      param: null,
      code: '400',
    },
  },
  {
    from: 'Anthropic',
    status: 400,
    error: { type: 'invalid_request_error', message: 'prompt is too long: 210000 tokens > 200000 maximum' },
    contextTokens: 200_000,
  },
  {
    from: 'Anthropic, with the answer',
    status: 400,
    error: {
      type: 'invalid_request_error',
      message: 'input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000',
    },
  },
  {
    from: 'Google',
    status: 400,
    error: {
      code: 400,
      message: 'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).',
      status: 'INVALID_ARGUMENT',
    },
    contextTokens: 1_048_576,
  },
  {
    from: 'Ollama (server/routes.go)',
    status: 400,
    error: { message: 'the input length exceeds the context length', type: 'invalid_request_error', code: null },
  },
  {
    from: 'Groq',
    status: 400,
    error: {
      message: 'Please reduce the length of the messages or completion.',
      type: 'invalid_request_error',
      code: 'context_length_exceeded',
    },
  },
  {
    from: 'Bedrock, through gateways',
    status: 400,
    error: { message: 'Input is too long for requested model.', type: 'ValidationException' },
  },
  {
    from: 'LM Studio',
    status: 400,
    error: {
      message:
        'Trying to keep the first 5846 tokens when context the overflows. However, the model is loaded with context ' +
        'length of only 4096 tokens, which is not enough.',
    },
    contextTokens: 4096,
  },
  {
    from: 'Text Generation Inference',
    status: 422,
    error: {
      message:
        'Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens',
      error_type: 'validation',
    },
  },
  {
    from: 'Groq, above the limit of a minute by itself (assafelovic/gpt-researcher#985)',
    status: 413,
    error: {
      message:
        'Request too large for model `llama-3.3-70b-versatile` on tokens per minute (TPM): Limit 6000, Requested 12328, ' +
        'please reduce your message size and try again.',
      type: 'tokens',
      code: 'rate_limit_exceeded',
    },
  },
  {
    from: 'Kimi',
    status: 400,
    error: {
      message: 'Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)',
      type: 'invalid_request_error',
    },
    contextTokens: 131_072,
  },
  {
    from: 'xAI',
    status: 400,
    error: { message: "This model's maximum prompt length is 131072 but the request contains 140000 tokens." },
    contextTokens: 131_072,
  },
];

describe('a request that is too long', () => {
  test.each(TOO_LONG)('$from', ({ status, error, contextTokens }) => {
    const { message } = error;
    const whole = reportedFailure({ message, status, error });
    expect(whole).toMatchObject({ failure: 'bad_request', isTooLong: true, isRetryable: false, contextTokens });
    // The same inside a stream, by those who put the status there.
    const inStream = reportedFailure({ message, error: { ...error, code: status } });
    expect(inStream).toMatchObject({ failure: 'bad_request', isTooLong: true, contextTokens });
    // A text may quote what a user has sent.
    expect(whole.namesContext).toBe('n_ctx' in error);
  });

  test('other invalid requests are not, nor are outages that quote such a text', () => {
    const message = 'messages: text content blocks must be non-empty';
    expect(reportedFailure({ message, status: 400, error: { type: 'invalid_request_error' } }).isTooLong).toBe(false);
    const quoted = reportedFailure({ message: 'prompt is too long', status: 503, error: {} });
    expect(quoted).toMatchObject({ failure: 'overloaded', isTooLong: false });
  });

  test.each([
    [400, true],
    [413, true],
    [422, true],
    [401, false],
    [404, false],
  ])('status %i without a word for it may mean it: %s', (status, mayBe) => {
    const failure = reportedFailure({ message: 'no', status, error: undefined });
    expect([failure.isTooLong, failure.mayBeTooLong]).toEqual([false, mayBe]);
  });

  test.each([
    [{ code: 'content_filter' }, false],
    [{ code: 'model_decommissioned', type: 'invalid_request_error' }, false],
    [{ code: null, param: 'tools[0].function.parameters' }, false],
    [{ code: '400', type: null, param: null }, true],
    [{ code: 400, type: 'BadRequestError', param: 'messages' }, true],
  ])('status 400 with %j may mean it: %s', (error, mayBe) => {
    expect(reportedFailure({ message: 'no', status: 400, error }).mayBeTooLong).toBe(mayBe);
  });
});

describe('the kind of a failure', () => {
  const failures: [string, { status?: number; code?: unknown; type?: unknown }, ModelFailure][] = [
    ['a status', { status: 503 }, 'overloaded'],
    ['a type beside a status', { status: 404, type: 'invalid_request_error' }, 'refused_model'],
    ['no credit', { status: 429, code: 'insufficient_quota' }, 'auth'],
    // Captured in mid-stream from LiteLLM (a string) and llama.cpp (a number); OpenRouter documents numbers.
    ['a status as a string inside a stream', { code: '500', type: null }, 'overloaded'],
    ['a status inside a stream', { code: 400 }, 'bad_request'],
    ['a wrong key inside a stream', { code: '401' }, 'auth'],
    ['a rate limit inside a stream', { code: 429 }, 'rate_limited'],
    ['a missing model inside a stream', { code: 404 }, 'refused_model'],
    // OpenAI's Responses, in `response.failed` and in `error` events.
    ['an overload of Responses', { code: 'server_is_overloaded', type: 'invalid_request_error' }, 'overloaded'],
    ['slow down', { code: 'slow_down', type: 'invalid_request_error' }, 'overloaded'],
    ['a rate limit of Responses', { code: 'rate_limit_exceeded', type: 'invalid_request_error' }, 'rate_limited'],
    ['a prompt that is rejected', { code: 'invalid_prompt' }, 'bad_request'],
    ['an event with a type alone', { type: 'authentication_error' }, 'auth'],
    ['nothing that is known', { code: 'gone_fishing' }, 'overloaded'],
    ['a code that is no status', { code: 7 }, 'overloaded'],
    ['a code of a business', { code: 1113 }, 'overloaded'],
    ['a code that is an object', { code: {}, type: 'rate_limit_error' }, 'rate_limited'],
  ];
  test.each(failures)('%s', (_what, { status, ...error }, failure) => {
    expect(reportedFailure({ message: 'no', status, error }).failure).toBe(failure);
  });

  test.each([undefined, null, 'a text', [], '<html>'])('an error that is %s', (error) => {
    expect(reportedFailure({ message: 'no', error }).failure).toBe('overloaded');
    expect(reportedFailure({ message: 'no', status: 400, error }).failure).toBe('bad_request');
  });
});

test.each<[string, number, string]>([
  ['Ollama 0.17.4 (captured)', 400, 'registry.ollama.ai/library/notools:latest does not support tools'],
  ['vLLM', 400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'],
  ['OpenRouter', 404, 'No endpoints found that support tool use.'],
  ['Groq', 400, '`tool calling` is not supported with this model'],
  ['LiteLLM', 400, "litellm.UnsupportedParamsError: x does not support parameters: ['tools'], for model=x"],
])('a model that takes no tools: %s', (_server, status, message) => {
  expect(reportedFailure({ message, status, error: {} }).refusesTools).toBe(true);
  expect(reportedFailure({ message, status: 503, error: {} }).refusesTools).toBe(false);
  expect(reportedFailure({ message: 'tools: invalid name', status: 400, error: {} }).refusesTools).toBe(false);
});
