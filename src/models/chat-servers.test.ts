import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LOOK, openModel, requestOf, USER } from '../../test/support/model-answers.ts';
import {
  EVENTS,
  failing,
  sending,
  startEndpoint,
  type Endpoint,
  type EndpointScript,
} from '../../test/support/model-protocols.ts';
import { BEHAVIOURS, delta, DONE, finish } from '../../test/support/model-servers.ts';
import { modelMessage } from '../../test/support/model-message.ts';
import { ToolCallDeltas } from '../agents/tool-call-deltas.ts';
import { applyDelta, emptyText } from '../core/message.ts';
import type { ModelMessage } from '../core/records/message.ts';
import type { TranscriptItem } from '../core/transcript.ts';
import { NEVER_ABORTED } from '../lib/abort.ts';
import { mergeFields } from './message-blocks.ts';
import { openAIProvider } from './openai/chat.ts';
import type { ProviderConfig } from './provider-file.ts';
import type { ModelChunk, ModelProvider, ModelRequest } from './provider.ts';

let endpoint: Endpoint;
beforeEach(async () => {
  endpoint = await startEndpoint();
});
afterEach(() => endpoint.stop());

const CALL = delta({
  tool_calls: [{ index: 0, id: 'c1', type: 'function', function: { name: 'look', arguments: '{}' } }],
});

function providerAt(url: string, maxTokensParameter?: ProviderConfig['maxTokensParameter']): ModelProvider {
  return openAIProvider({
    apiKey: 'k',
    baseUrl: url,
    headers: {},
    firstChunkSeconds: 60,
    idleSeconds: 60,
    maxTokensParameter,
  });
}

interface Answer {
  content: string;
  reasoning: string;
  calls: number;
  finishReason: string | undefined;
  providerFields: Record<string, unknown>;
}

async function read(request: ModelRequest = requestOf({ tools: [LOOK] })): Promise<Answer> {
  const answer: Answer = { content: '', reasoning: '', calls: 0, finishReason: undefined, providerFields: {} };
  for await (const chunk of providerAt(endpoint.url).stream(request, NEVER_ABORTED)) {
    answer.content += chunk.content ?? '';
    answer.reasoning += chunk.reasoning ?? '';
    answer.calls += chunk.toolCalls?.filter(({ id }) => id).length ?? 0;
    answer.finishReason ??= chunk.finishReason;
    answer.providerFields = mergeFields(answer.providerFields, chunk.providerFields ?? {});
  }
  return answer;
}

/** The second request of a step with one call, as the server gets it: its message of the assistant. */
async function sentBack(
  first: Answer,
  accepts: (message: Record<string, unknown>) => boolean,
  refusal = 'the thoughts are missing',
): Promise<unknown> {
  const message: ModelMessage = modelMessage({
    content: first.content,
    reasoning: first.reasoning,
    providerFields: first.providerFields,
    toolCalls: [
      {
        id: 'c1',
        name: 'look',
        arguments: '{}',
        info: { type: 'system', name: 'look' },
        route: { to: 'server', effect: 'once', approval: false, callHash: '' },
      },
    ],
  });
  const result: TranscriptItem = { role: 'tool', toolCallId: 'c1', name: 'look', content: 'blue', files: [] };
  const assistant = () => {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the body of a chat completion
    const body = endpoint.requests.at(-1)?.body as { messages: Record<string, unknown>[] };
    return body.messages.find(({ role }) => role === 'assistant') ?? {};
  };
  const checking: EndpointScript = (response) =>
    accepts(assistant())
      ? sending(delta({ content: 'done' }), finish('stop'), DONE)(response)
      : failing({ error: { message: refusal, type: 'invalid_request_error' } }, 400)(response);
  endpoint.script(checking);
  await read(requestOf({ tools: [LOOK], transcript: [USER, { role: 'assistant', message }, result] }));
  return assistant();
}

describe('the behaviour of servers', () => {
  test.each(BEHAVIOURS)('$server $does ($source)', async ({ kind, answers, gives, fails }) => {
    endpoint.script(answers);
    const provider = kind ? openModel(endpoint, kind, { idleSeconds: 60 }).provider : providerAt(endpoint.url);
    const answer = assembled(provider);
    if (fails) await expect(answer).rejects.toMatchObject(fails);
    else expect(await answer).toMatchObject(gives ?? {});
  });
});

/** An answer with its calls as the agent gets them. */
async function assembled(provider: ModelProvider): Promise<object> {
  const text = emptyText();
  const calls = new ToolCallDeltas([], (name) => ({ type: 'system', name }));
  const end: Pick<ModelChunk, 'finishReason' | 'usage'> = {};
  for await (const chunk of provider.stream(requestOf({ tools: [LOOK] }), NEVER_ABORTED)) {
    const { content, reasoning, toolCalls = [], finishReason, usage } = chunk;
    const deltas = toolCalls.flatMap((call) => calls.next(call) ?? []);
    applyDelta(text, { ...(content && { content }), ...(reasoning && { reasoning }), toolCalls: deltas });
    Object.assign(end, finishReason && { finishReason }, usage && { usage });
  }
  const { toolCalls, ...texts } = text;
  return { ...texts, ...end, calls: toolCalls };
}

describe('the thoughts of a model are sent back in the field in which they came', () => {
  test.each([
    {
      server: 'DeepSeek',
      source: 'https://github.com/earendil-works/pi/issues/3636',
      field: 'reasoning_content',
      refusal: 'The `reasoning_content` in the thinking mode must be passed back to the API.',
    },
    {
      server: 'Kimi',
      source: 'https://github.com/continuedev/continue/issues/11600',
      field: 'reasoning_content',
      refusal: 'thinking is enabled but reasoning_content is missing in assistant tool call message at index 2',
    },
    {
      server: 'Ollama',
      source: 'https://github.com/ollama/ollama/blob/main/openai/openai.go',
      field: 'reasoning',
      refusal: 'it thinks again',
    },
  ])('$server: $field ($source)', async ({ field, refusal }) => {
    endpoint.script(sending(delta({ [field]: 'the ' }), delta({ [field]: 'sea' }), CALL, finish('tool_calls'), DONE));
    const first = await read();
    expect(first).toMatchObject({ reasoning: 'the sea', content: '', calls: 1 });
    const accepts = (message: Record<string, unknown>): boolean => message[field] === 'the sea';
    expect(await sentBack(first, accepts, refusal)).not.toHaveProperty('reasoning_field');
  });

  test('thoughts among the parts of the content, as Mistral has them', async () => {
    const thinking = (text: string) => ({ type: 'thinking', thinking: [{ type: 'text', text }] });
    endpoint.script(
      sending(
        delta({ content: [thinking('the ')] }),
        delta({ content: [thinking('sea')] }),
        delta({ content: [{ type: 'text', text: 'I look' }] }),
        // After results of tools: https://github.com/vercel/ai/issues/4747
        delta({ content: [{ type: 'reference', reference_ids: [0] }] }),
        delta({ content: ' now' }),
        CALL,
        finish('tool_calls'),
        DONE,
      ),
    );
    const first = await read();
    expect(first).toMatchObject({ reasoning: 'the sea', content: 'I look now' });
    const content = [thinking('the sea'), { type: 'text', text: 'I look now' }];
    expect(await sentBack(first, (message) => Array.isArray(message['content']))).toMatchObject({ content });
  });

  test('with structured details, only those go back (OpenRouter)', async () => {
    const details = [{ type: 'reasoning.text', text: 'the sea', signature: 's' }];
    endpoint.script(
      sending(delta({ reasoning: 'the sea', reasoning_details: details }), CALL, finish('tool_calls'), DONE),
    );
    const sent = await sentBack(await read(), (message) => message['reasoning_details'] !== undefined);
    expect(sent).toMatchObject({ reasoning_details: details });
    expect(sent).not.toHaveProperty('reasoning');
  });

  // LiteLLM before Anthropic, whose signature is one of the whole text: https://docs.litellm.ai/docs/reasoning_content
  test('thinking blocks whose text and signature come in pieces', async () => {
    const block = (index: number, thinking: string, signature?: string) =>
      delta({ reasoning_content: thinking, thinking_blocks: [{ type: 'thinking', thinking, signature, index }] });
    const redacted = { type: 'redacted_thinking', data: 'R', index: 1 };
    endpoint.script(
      sending(
        block(0, 'the '),
        block(0, 'sea'),
        block(0, '', 's'),
        delta({ thinking_blocks: [redacted] }),
        block(2, 'is '),
        block(2, 'blue', 't'),
        CALL,
        finish('tool_calls'),
        DONE,
      ),
    );
    expect(await sentBack(await read(), (message) => message['thinking_blocks'] !== undefined)).toMatchObject({
      thinking_blocks: [
        { type: 'thinking', thinking: 'the sea', signature: 's' },
        redacted,
        { type: 'thinking', thinking: 'is blue', signature: 't' },
      ],
    });
  });

  test('a server that sends no thoughts gets none', async () => {
    endpoint.script(sending(CALL, finish('tool_calls'), DONE));
    const sent = await sentBack({ ...(await read()), reasoning: 'of another model' }, () => true);
    expect(JSON.stringify(sent)).not.toContain('of another model');
  });

  test.each([[{ type: 'text' }], 7, [7]])(
    'content that is neither text nor parts of it is a broken stream: %j',
    async (content) => {
      endpoint.script(sending(delta({ content }), finish('stop'), DONE));
      await expect(read()).rejects.toMatchObject({ failure: 'broken_stream' });
    },
  );
});

describe('the end of an answer without a reason', () => {
  test.each([
    ['stop', [delta({ content: 'whole' }), DONE]],
    ['tool_calls', [CALL, 'data: [DONE]\r\n\r\n']],
    // Only the first one counts.
    ['length', [delta({ content: 'whole' }), finish('length'), DONE]],
  ])('is %s after [DONE]', async (finishReason, events) => {
    endpoint.script(sending(...events));
    expect(await read()).toMatchObject({ finishReason });
  });

  test('is a broken stream without [DONE], also if the text says it', async () => {
    endpoint.script(sending(delta({ content: 'data: [DONE]' })));
    await expect(read()).rejects.toMatchObject({ failure: 'broken_stream' });
  });

  test('in pieces of one byte', async () => {
    endpoint.script(async (response) => {
      response.writeHead(200, EVENTS);
      for (const byte of `${delta({ content: 'a' })}${DONE}`)
        await new Promise((sent) => void response.write(byte, sent));
      response.end();
    });
    expect(await read()).toMatchObject({ content: 'a', finishReason: 'stop' });
  });
});

describe('parameters', () => {
  const bodyOf = async (request: ModelRequest, parameter?: ProviderConfig['maxTokensParameter']): Promise<unknown> => {
    endpoint.script(sending(delta({ content: 'ok' }), finish('stop'), DONE));
    await Array.fromAsync(providerAt(endpoint.url, parameter).stream(request, NEVER_ABORTED));
    return endpoint.requests.at(-1)?.body;
  };

  // OpenAI: 400 "'parallel_tool_calls' is only allowed when 'tools' are specified."
  test('parallel_tool_calls is sent with tools only', async () => {
    const params = { parallel_tool_calls: false };
    expect(await bodyOf(requestOf({ params, tools: [LOOK] }))).toMatchObject(params);
    expect(await bodyOf(requestOf({ params }))).not.toHaveProperty('parallel_tool_calls');
  });

  test('the limit of tokens has the name that the provider file gives', async () => {
    const params = { max_tokens: 9 };
    expect(await bodyOf(requestOf({ params }))).toMatchObject({ max_tokens: 9 });
    const named = await bodyOf(requestOf({ params }), 'max_completion_tokens');
    expect(named).toMatchObject({ max_completion_tokens: 9 });
    expect(named).not.toHaveProperty('max_tokens');
  });
});
