import { expect } from 'vitest';
import { EVENTS, failing, sending, type EndpointScript } from './model-protocols.ts';

/**
 * What servers with OpenAI's protocols do that OpenAI does not, or that its documentation does not say, each as it was
 * seen: `source` is where, `captured` by ourselves from the server itself (LiteLLM 1.108.7, llama-server b1-0c1e570,
 * Ollama 0.17.4).
 */
export interface ServerBehaviour {
  server: string;
  does: string;
  source: string;
  /** Default: chat completions. */
  kind?: 'openai-responses';
  answers: EndpointScript;
  /** The fields of the response. */
  gives?: object;
  /** The fields of the error, if it is one. */
  fails?: object;
}

export const event = (data: object | string): string =>
  `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;
export const delta = (fields: object): string => event({ choices: [{ index: 0, delta: fields, finish_reason: null }] });
export const finish = (reason: string): string => event({ choices: [{ index: 0, delta: {}, finish_reason: reason }] });
export const DONE = event('[DONE]');

const OK = [delta({ content: 'ok' }), finish('stop'), DONE];
const WHOLE = { content: 'ok', finishReason: 'stop' };

const call = (fields: object, at: string): object => ({
  type: 'function',
  function: { name: 'look', arguments: `{"at":"${at}"}` },
  ...fields,
});
const TWO_CALLS = {
  finishReason: 'tool_calls',
  calls: [
    { name: 'look', arguments: '{"at":"sea"}' },
    { name: 'look', arguments: '{"at":"sky"}' },
  ],
};

/** An event of OpenAI's Responses: its name is its type. */
const named = (type: string, fields: object): string => `event: ${type}\n${event({ type, ...fields })}`;

/** llama-server b1-0c1e570, captured. */
export const LLAMA_CPP_TOO_LONG = {
  code: 400,
  message: 'request (10838 tokens) exceeds the available context size (4096 tokens), try increasing it',
  type: 'exceed_context_size_error',
  n_prompt_tokens: 10838,
  n_ctx: 4096,
};

export const BEHAVIOURS: ServerBehaviour[] = [
  {
    server: 'DeepSeek',
    does: 'sends comments while the request waits',
    source: 'https://api-docs.deepseek.com/quick_start/rate_limit',
    answers: sending(': keep-alive\n\n', ': keep-alive\n\n', ...OK),
    gives: WHOLE,
  },
  {
    server: 'DeepSeek',
    does: 'counts what it has cached and thought',
    source: 'https://api-docs.deepseek.com/api/create-chat-completion',
    answers: sending(
      delta({ content: 'ok' }),
      event({
        choices: [{ index: 0, delta: { content: '' }, finish_reason: 'stop' }],
        usage: {
          prompt_tokens: 20,
          completion_tokens: 9,
          prompt_tokens_details: { cached_tokens: 12 },
          completion_tokens_details: { reasoning_tokens: 4 },
          prompt_cache_hit_tokens: 12,
          prompt_cache_miss_tokens: 8,
        },
      }),
      DONE,
    ),
    gives: { ...WHOLE, usage: { inputTokens: 20, outputTokens: 9, cacheReadTokens: 12, reasoningTokens: 4 } },
  },
  {
    server: 'DeepSeek',
    does: 'interrupts an answer for want of resources',
    source: 'https://api-docs.deepseek.com/api/create-chat-completion',
    answers: sending(delta({ content: 'I was' }), finish('insufficient_system_resource'), DONE),
    fails: { failure: 'overloaded', isRetryable: true, message: expect.stringMatching(/insufficient_system_resource/) },
  },
  {
    server: 'DeepSeek',
    does: 'has no credit',
    source: 'https://api-docs.deepseek.com/quick_start/error_codes',
    answers: failing(
      { error: { message: 'Insufficient Balance', type: 'unknown_error', param: null, code: 'invalid_request_error' } },
      402,
    ),
    fails: { failure: 'auth', status: 402, isRetryable: false, message: 'Insufficient Balance' },
  },
  {
    server: 'DeepSeek',
    does: 'rejects what is too long',
    source: 'https://github.com/evalstate/fast-agent/issues/621',
    answers: failing(
      {
        error: {
          message:
            "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the messages, 8192 in the completion).",
          type: 'invalid_request_error',
          param: null,
          code: 'invalid_request_error',
        },
      },
      400,
    ),
    fails: { failure: 'bad_request', isTooLong: true },
  },
  {
    server: 'Kimi',
    does: 'has the usage in the choice',
    source: 'https://github.com/earendil-works/pi/issues/2017',
    answers: sending(
      delta({ content: 'ok' }),
      event({
        choices: [
          {
            index: 0,
            delta: {},
            finish_reason: 'stop',
            usage: { prompt_tokens: 20, completion_tokens: 9, total_tokens: 29, cached_tokens: 12 },
          },
        ],
      }),
      DONE,
    ),
    gives: { ...WHOLE, usage: { inputTokens: 20, outputTokens: 9 } },
  },
  {
    server: 'Kimi',
    does: 'is overloaded, with the status of a rate limit',
    source: 'https://forum.moonshot.ai/t/the-engine-is-currently-overloaded/569',
    answers: failing(
      {
        error: {
          message: 'The engine is currently overloaded, please try again later',
          type: 'engine_overloaded_error',
        },
      },
      429,
    ),
    fails: { failure: 'overloaded', status: 429, isRetryable: true },
  },
  {
    server: 'Kimi',
    does: 'has no credit, with the status of a rate limit',
    source: 'https://github.com/MoonshotAI/kimi-code/pull/1857',
    answers: failing(
      {
        error: {
          message: 'Your account org-1 is suspended due to insufficient balance, please recharge your account',
          type: 'exceeded_current_quota_error',
        },
      },
      429,
    ),
    fails: { failure: 'auth', isRetryable: false },
  },
  {
    server: 'Kimi',
    does: 'rejects what is too long',
    source: 'https://github.com/MoonshotAI/kimi-cli/issues/2011',
    answers: failing(
      {
        error: {
          message: 'Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)',
          type: 'invalid_request_error',
        },
      },
      400,
    ),
    fails: { failure: 'bad_request', isTooLong: true, contextTokens: 262_144 },
  },
  {
    server: 'Mistral',
    does: 'has an empty usage in each event',
    source: 'https://github.com/BerriAI/litellm/issues/1371',
    answers: sending(
      event({ choices: [{ index: 0, delta: { content: 'ok' }, finish_reason: null }], usage: {} }),
      finish('stop'),
      DONE,
    ),
    gives: WHOLE,
  },
  {
    server: 'Mistral',
    does: 'ends an answer at the limit of the model',
    source: 'https://github.com/vercel/ai/blob/main/packages/mistral/src/map-mistral-finish-reason.ts',
    answers: sending(delta({ content: 'and so' }), finish('model_length'), DONE),
    gives: { content: 'and so', finishReason: 'length' },
  },
  {
    server: 'Mistral',
    does: 'ends an answer with an error',
    source: 'https://github.com/vercel/ai/blob/main/packages/mistral/src/map-mistral-finish-reason.ts',
    answers: sending(delta({ content: 'and so' }), finish('error'), DONE),
    fails: { failure: 'overloaded', isRetryable: true },
  },
  {
    server: 'Mistral',
    does: 'has no such model, and no object around its error',
    source: 'https://github.com/mistralai/mistral-vibe/issues/617',
    answers: failing(
      {
        object: 'error',
        message: 'Invalid model: mistral-medium-3.5',
        type: 'invalid_model',
        param: null,
        code: '1500',
        raw_status_code: 400,
      },
      400,
    ),
    fails: { failure: 'refused_model', mayBeTooLong: false, message: 'Invalid model: mistral-medium-3.5' },
  },
  {
    server: 'vLLM',
    does: 'has no such model, and no object around its error',
    source: 'https://github.com/vllm-project/vllm/issues/3485',
    answers: failing(
      {
        object: 'error',
        message: 'The model `Qwen1.5` does not exist.',
        type: 'NotFoundError',
        param: null,
        code: 404,
      },
      404,
    ),
    fails: { failure: 'refused_model', message: 'The model `Qwen1.5` does not exist.' },
  },
  {
    server: 'vLLM',
    does: 'rejects what is too long',
    source: 'https://github.com/ogx-ai/ogx/issues/4534',
    answers: failing(
      {
        object: 'error',
        message:
          "This model's maximum context length is 6048 tokens. However, you requested 6616 tokens (568 in the messages, 6048 in the completion).",
        type: 'BadRequestError',
        param: null,
        code: 400,
      },
      400,
    ),
    fails: { failure: 'bad_request', isTooLong: true, contextTokens: 6048 },
  },
  {
    server: 'vLLM',
    does: 'reports an error inside a stream',
    source: 'https://github.com/block/goose/pull/8031',
    answers: sending(
      delta({ content: 'I was' }),
      event({ error: { object: 'error', message: 'no such token', type: 'BadRequestError', param: null, code: 400 } }),
      DONE,
    ),
    fails: { failure: 'bad_request', message: 'no such token', isRetryable: false },
  },
  {
    server: 'vLLM',
    does: 'reports an error inside a stream, as an event of its own',
    source: 'https://github.com/block/goose/pull/8031',
    answers: sending(
      delta({ content: 'I was' }),
      event({ object: 'error', message: 'no such token', type: 'BadRequestError', param: null, code: 400 }),
      DONE,
    ),
    fails: { failure: 'bad_request', message: 'no such token', isRetryable: false },
  },
  {
    server: 'llama.cpp',
    does: 'reports an error inside a stream, with a number as its code',
    source: 'captured',
    answers: sending(
      delta({ content: 'I was' }),
      event({
        error: {
          code: 500,
          message: 'The model produced output that does not match the expected peg-native format',
          type: 'server_error',
        },
      }),
    ),
    fails: { failure: 'overloaded', isRetryable: true, status: 500 },
  },
  {
    server: 'llama.cpp',
    does: 'rejects what is too long, and says its context',
    source: 'captured',
    answers: failing({ error: LLAMA_CPP_TOO_LONG }, 400),
    fails: { isTooLong: true, contextTokens: 4096, namesContext: true },
  },
  {
    server: 'llama.cpp',
    does: 'rejects a wrong key',
    source: 'https://github.com/ggml-org/llama.cpp/blob/master/tools/server/server-http.cpp',
    answers: failing({ error: { code: 401, message: 'Invalid API Key', type: 'authentication_error' } }, 401),
    fails: { failure: 'auth', isRetryable: false, message: 'Invalid API Key' },
  },
  {
    server: 'llama.cpp',
    does: 'loads its model',
    source: 'https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md',
    answers: failing({ error: { code: 503, message: 'Loading model', type: 'unavailable_error' } }, 503),
    fails: { failure: 'overloaded', isRetryable: true, message: 'Loading model' },
  },
  {
    server: 'Ollama',
    does: 'gives each call the index 0',
    source: 'https://github.com/ollama/ollama/issues/15457',
    answers: sending(
      delta({ tool_calls: [call({ index: 0, id: 'call_a' }, 'sea')] }),
      delta({ tool_calls: [call({ index: 0, id: 'call_b' }, 'sky')] }),
      finish('tool_calls'),
      DONE,
    ),
    gives: TWO_CALLS,
  },
  {
    server: 'Ollama',
    does: 'gives no call an index',
    source: 'https://github.com/ollama/ollama/issues/7881',
    answers: sending(
      delta({ tool_calls: [call({ id: 'call_a' }, 'sea'), call({ id: 'call_b' }, 'sky')] }),
      finish('tool_calls'),
      DONE,
    ),
    gives: TWO_CALLS,
  },
  {
    server: 'Ollama',
    does: 'has a model without tools',
    source: 'captured',
    answers: failing(
      {
        error: {
          message: 'registry.ollama.ai/library/notools:latest does not support tools',
          type: 'invalid_request_error',
          param: null,
          code: null,
        },
      },
      400,
    ),
    fails: { failure: 'bad_request', refusesTools: true },
  },
  {
    server: 'Ollama',
    does: 'has no such model',
    source: 'https://github.com/ollama/ollama/blob/main/openai/openai.go',
    answers: failing(
      { error: { message: "model 'nothing' not found", type: 'not_found_error', param: null, code: null } },
      404,
    ),
    fails: { failure: 'refused_model', message: "model 'nothing' not found" },
  },
  {
    server: 'LiteLLM',
    does: 'reports an error inside a stream, with a number in a text as its code',
    source: 'captured',
    answers: sending(
      delta({ content: 'I was' }),
      event({ error: { message: 'litellm.APIConnectionError: lost', type: null, param: null, code: '500' } }),
    ),
    fails: { failure: 'overloaded', isRetryable: true, status: 500 },
  },
  {
    server: 'LiteLLM',
    does: 'rejects a parameter that the model does not have',
    source: 'captured',
    answers: failing(
      {
        error: {
          message:
            "litellm.UnsupportedParamsError: openai does not support parameters: ['reasoning_effort'], for model=gpt-4o.",
          type: null,
          param: null,
          code: '400',
        },
      },
      400,
    ),
    fails: { failure: 'bad_request', refusesTools: false, isTooLong: false, isRetryable: false },
  },
  {
    server: 'LiteLLM',
    does: 'rejects a wrong key with a status of its own',
    source: 'captured',
    answers: failing(
      { error: { message: 'No connected db.', type: 'no_db_connection', param: null, code: '400' } },
      400,
    ),
    fails: { failure: 'bad_request', isRetryable: false, message: 'No connected db.' },
  },
  {
    server: 'LiteLLM',
    does: 'rejects what is too long for the model behind it',
    source: 'captured',
    answers: failing(
      {
        error: {
          message:
            'litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - too many. context_window_fallbacks=None.',
          type: null,
          param: null,
          code: '400',
        },
      },
      400,
    ),
    fails: { failure: 'bad_request', isTooLong: true },
  },
  {
    server: 'OpenRouter',
    does: 'sends comments while the model is silent',
    source: 'https://openrouter.ai/docs/api-reference/streaming',
    answers: async (response) => {
      response.writeHead(200, EVENTS);
      for (const piece of [': OPENROUTER PROCESSING\n\n', ...OK]) {
        await new Promise((sent) => void response.write(piece, sent));
      }
      response.end();
    },
    gives: WHOLE,
  },
  {
    server: 'OpenRouter',
    does: 'reports an error inside a stream, beside a choice',
    source: 'https://openrouter.ai/docs/api-reference/streaming',
    answers: sending(
      delta({ content: 'I was' }),
      event({
        error: { code: 'server_error', message: 'Provider disconnected unexpectedly' },
        choices: [{ index: 0, delta: { content: '' }, finish_reason: 'error' }],
      }),
      DONE,
    ),
    fails: { failure: 'overloaded', isRetryable: true, message: 'Provider disconnected unexpectedly' },
  },
  {
    server: 'OpenRouter',
    does: 'passes on what the provider behind it said',
    source: 'https://github.com/charmbracelet/crush/issues/279',
    answers: failing(
      {
        error: {
          message: 'Provider returned error',
          code: 400,
          metadata: {
            raw: '{"object":"error","message":"Unexpected role \'tool\' after role \'user\'","code":"3230"}',
            provider_name: 'Mistral',
          },
        },
      },
      400,
    ),
    fails: {
      failure: 'bad_request',
      message: expect.stringMatching(/^Provider returned error: .*Unexpected role 'tool'/),
    },
  },
  {
    server: 'OpenRouter',
    does: 'has no credit',
    source: 'https://openrouter.ai/docs/api/errors',
    answers: failing({ error: { code: 402, message: 'Insufficient credits' } }, 402),
    fails: { failure: 'auth', isRetryable: false, message: 'Insufficient credits' },
  },
  {
    server: 'Azure',
    does: 'begins with what its filter says of the prompt, without a choice',
    source: 'https://github.com/AbanteAI/archive-old-cli-mentat/issues/429',
    answers: sending(
      event({
        id: '',
        choices: [],
        created: 0,
        model: '',
        object: '',
        prompt_filter_results: [{ prompt_index: 0, content_filter_results: { hate: { filtered: false } } }],
      }),
      ...OK,
    ),
    gives: WHOLE,
  },
  {
    server: 'Azure',
    does: 'sends what its filter says of an answer in choices without a delta',
    source: 'https://github.com/microsoft/autogen/issues/6465',
    answers: sending(
      delta({ content: 'ok' }),
      finish('stop'),
      event({
        id: '',
        object: '',
        choices: [{ index: 0, finish_reason: null, content_filter_results: {}, content_filter_offsets: {} }],
        usage: null,
      }),
      DONE,
    ),
    gives: WHOLE,
  },
  {
    server: 'Azure',
    does: 'rejects a prompt',
    source: 'https://github.com/compl-ai/compl-ai/issues/20',
    answers: failing(
      {
        error: {
          message: "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
          type: null,
          param: 'prompt',
          code: 'content_filter',
          status: 400,
          innererror: { code: 'ResponsibleAIPolicyViolation', content_filter_result: {} },
        },
      },
      400,
    ),
    fails: { failure: 'bad_request', mayBeTooLong: false, message: expect.stringMatching(/content management policy/) },
  },
  {
    server: 'Azure',
    does: 'ends an answer that it filters',
    source: 'https://learn.microsoft.com/en-us/azure/ai-services/openai/concepts/content-filter',
    answers: sending(delta({ content: 'I was' }), finish('content_filter'), DONE),
    gives: { content: 'I was', finishReason: 'content_filter' },
  },
  {
    server: 'Gemini',
    does: 'sends calls without an index in events of their own',
    source: 'https://github.com/noho/dayu-agent/pull/57',
    answers: sending(
      delta({ tool_calls: [call({ id: 'a', extra_content: { google: { thought_signature: 's' } } }, 'sea')] }),
      delta({ tool_calls: [call({ id: 'b' }, 'sky')] }),
      finish('stop'),
      DONE,
    ),
    gives: { ...TWO_CALLS, finishReason: 'stop' },
  },
  {
    server: 'OpenAI',
    does: 'rejects a parameter that the model does not have',
    source: 'https://github.com/microsoft/vscode-copilot-release/issues/9954',
    answers: failing(
      {
        error: {
          message: "Unsupported parameter: 'max_tokens' is not supported with this model.",
          type: 'invalid_request_error',
          param: 'max_tokens',
          code: 'unsupported_parameter',
        },
      },
      400,
    ),
    fails: { failure: 'bad_request', mayBeTooLong: false, isRetryable: false },
  },
  {
    server: 'OpenAI Responses',
    does: 'reports what is too long in an event',
    source: 'https://github.com/maximhq/bifrost/issues/4413',
    kind: 'openai-responses',
    answers: sending(
      named('error', {
        error: {
          type: 'invalid_request_error',
          code: 'context_length_exceeded',
          message: 'Your input exceeds the context window of this model.',
          param: 'input',
        },
      }),
    ),
    fails: { failure: 'bad_request', isTooLong: true },
  },
  {
    server: 'OpenAI Responses',
    does: 'reports an error in an event with the fields of its own',
    source: 'https://docs.rs/crate/openai-client-base/latest/source/docs/ResponseErrorEvent.md',
    kind: 'openai-responses',
    answers: sending(
      named('error', { code: 'rate_limit_exceeded', message: 'slow down', param: null, sequence_number: 1 }),
    ),
    fails: { failure: 'rate_limited', isRetryable: true, message: 'slow down' },
  },
  {
    server: 'OpenAI Responses',
    does: 'fails in the middle of an answer',
    source: 'https://platform.openai.com/docs/api-reference/responses-streaming/response/failed',
    kind: 'openai-responses',
    answers: sending(
      named('response.failed', {
        response: { status: 'failed', error: { code: 'server_error', message: 'The model failed.' } },
      }),
    ),
    fails: { failure: 'overloaded', isRetryable: true, message: 'The model failed.' },
  },
  {
    server: 'OpenAI Responses',
    does: 'ends an answer that it filters',
    source: 'https://platform.openai.com/docs/api-reference/responses-streaming/response/incomplete',
    kind: 'openai-responses',
    answers: sending(
      named('response.output_text.delta', { output_index: 0, content_index: 0, delta: 'I was' }),
      named('response.incomplete', {
        response: { status: 'incomplete', incomplete_details: { reason: 'content_filter' } },
      }),
    ),
    gives: { content: 'I was', finishReason: 'content_filter' },
  },
];
