import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { LOOK, messageOf, openModel, read, requestOf, USER } from '../../test/support/model-answers.ts';
import {
  EVENTS,
  failing,
  PROTOCOLS,
  sending,
  startEndpoint,
  type Endpoint,
  type EndpointScript,
} from '../../test/support/model-protocols.ts';
import { emptyText } from '../core/message.ts';
import type { Usage } from '../core/records/usage.ts';
import type { TranscriptItem } from '../core/transcript.ts';
import type { ModelError } from './model-error.ts';
import type { ModelProvider } from './provider.ts';
import type { ModelTarget } from './providers.ts';

function resultOf(toolCallId: string, content: string): TranscriptItem {
  return { role: 'tool', toolCallId, name: 'look', content, files: [] };
}

const never = new AbortController().signal;

describe.each(PROTOCOLS)('$kind', (protocol) => {
  const { kind, events } = protocol;
  let endpoint: Endpoint;
  let target: ModelTarget;
  let provider: ModelProvider;
  beforeEach(async () => {
    endpoint = await startEndpoint();
    target = open(1);
    ({ provider } = target);
  });
  afterEach(() => endpoint.stop());

  const open = (idleSeconds: number): ModelTarget => openModel(endpoint, kind, { idleSeconds });

  test('a text arrives word by word, with its usage', async () => {
    endpoint.script(sending(...events({ text: 'all is well', usage: { input: 12, cached: 4, output: 3 } })));
    expect(await read(provider)).toMatchObject({
      content: 'all is well',
      finishReason: 'stop',
      usage: { inputTokens: 12, cacheReadTokens: 4, outputTokens: 3 },
    });
    const [request] = endpoint.requests;
    expect(JSON.stringify(request?.headers)).toContain('the-key');
    expect(request?.headers).toMatchObject({ 'x-team': 'a' });
    expect(JSON.stringify(request?.body)).toContain('Be brief.');
  });

  test.runIf(kind === 'google')('usage has the tokens of audio and images', async () => {
    const counts = (name: string, audio: number, image: number) => {
      const details = [
        { modality: 'TEXT', tokenCount: 1 },
        { modality: 'AUDIO', tokenCount: audio },
        { modality: 'IMAGE', tokenCount: image },
      ];
      return `"${name}TokensDetails":${JSON.stringify(details)}`;
    };
    const details = [counts('prompt', 5, 3), counts('cache', 2, 1), counts('candidates', 0, 4)].join();
    const media = { audioInput: 5, imageInput: 3, cachedAudio: 2, cachedImage: 1, imageOutput: 4 };
    const sent = events({ text: 'all is well', usage: { input: 12, cached: 4, output: 6 } }).map((event) =>
      event.replace('"promptTokenCount"', `${details},"promptTokenCount"`),
    );
    endpoint.script(sending(...sent));
    // Each event has the usage so far, and so has the end of the answer.
    const seen: (Usage | undefined)[] = [];
    for await (const { usage } of provider.stream(requestOf(), never)) if (usage) seen.push(usage);
    expect(seen).toHaveLength(sent.length + 1);
    for (const usage of seen) expect(usage).toMatchObject({ inputTokens: 12, outputTokens: 6, media });
  });

  test('parallel calls and their results', async () => {
    const calls = [
      { id: 'call00001', name: 'look', args: { at: 'sea' } },
      { id: 'call00002', name: 'look', args: {} },
    ];
    endpoint.script(sending(...events({ text: 'wait ', calls })), sending(...events({ text: 'done' })));
    const answer = await read(provider, requestOf({ tools: [LOOK] }));
    expect(answer.toolCalls.map(({ id, name, arguments: args }) => [id, name, JSON.parse(args)])).toEqual([
      ['call00001', 'look', { at: 'sea' }],
      ['call00002', 'look', {}],
    ]);
    const transcript = [USER, messageOf(answer), resultOf('call00001', 'blue'), resultOf('call00002', 'green')];
    expect(await read(provider, requestOf({ tools: [LOOK], transcript }))).toMatchObject({ content: 'done' });
    const sent = JSON.stringify(endpoint.requests[1]?.body);
    for (const part of ['wait ', '"call00001"', '"call00002"', 'blue', 'green', 'sea']) expect(sent).toContain(part);
  });

  test('reasoning and its signature go back across a tool step, unchanged and before the call', async () => {
    const reasoning = { text: 'the sea, then', signature: 'SIGNATURE-1' };
    const calls = [{ id: 'call00001', name: 'look', args: { at: 'sea' }, signature: 'SIGNATURE-1' }];
    endpoint.script(
      sending(...events({ reasoning, calls, usage: { input: 10, output: 9, reasoning: 6 } })),
      sending(...events({ text: 'done' })),
    );
    const request = requestOf({ tools: [LOOK], params: { reasoning_effort: 'low' } });
    const answer = await read(provider, request);
    expect(answer).toMatchObject({ reasoning: 'the sea, then', content: '' });
    // The others do not count it apart.
    if (kind === 'google' || kind === 'openai-responses')
      expect(answer.usage).toMatchObject({ outputTokens: 9, reasoningTokens: 6 });
    await read(provider, { ...request, transcript: [USER, messageOf(answer), resultOf('call00001', 'blue')] });
    const sent = JSON.stringify(endpoint.requests[1]?.body);
    if (kind !== 'mistral') expect(sent.split('SIGNATURE-1')).toHaveLength(2);
    expect(sent.indexOf('the sea, then')).toBeLessThan(sent.indexOf('"call00001"'));
    expect(sent).toContain('the sea, then');
  });

  test('a message that another provider wrote is sent without its reasoning', async () => {
    endpoint.script(sending(...events({ text: 'done' })));
    const foreign = messageOf({
      ...emptyText(),
      content: 'I looked',
      reasoning: 'SECRET',
      usage: undefined,
      finishReason: 'stop',
      blocks: [],
    });
    await read(provider, requestOf({ transcript: [USER, foreign, USER] }));
    const sent = JSON.stringify(endpoint.requests[0]?.body);
    expect(sent).toContain('I looked');
    expect(sent).not.toContain('SECRET');
  });

  test('parameters of other providers that this one rejects are not in its request', async () => {
    endpoint.script(sending(...events({ text: 'done' })));
    const odd = 'functions.look at/it:0';
    const info = { type: 'system' as const, name: odd };
    const foreign = messageOf({
      ...emptyText(),
      content: '\n\n',
      toolCalls: [{ id: odd, name: odd, arguments: '{}', info }],
      usage: undefined,
      finishReason: 'stop',
      blocks: [],
    });
    const result: TranscriptItem = { role: 'tool', toolCallId: odd, name: odd, content: 'blue', files: [] };
    const blank = messageOf({ ...emptyText(), content: ' ', usage: undefined, finishReason: 'stop', blocks: [] });
    await read(provider, requestOf({ transcript: [USER, foreign, result, blank, USER], tools: [LOOK] }));
    const sent = JSON.stringify(endpoint.requests[0]?.body);
    expect(sent).toContain('"functions_look_at_it_0"');
    expect(sent).not.toMatch(/"(name|toolName)":"[^"]*[.:/ ]/);
    if (kind === 'openai-responses') return;
    expect(sent).not.toContain(odd);
    expect(sent).not.toMatch(/"text":"\s*(\\n)*"/);
    expect(sent).not.toMatch(/"(content|parts)":\[\]/);
    // The ids of the call and its result.
    if (kind === 'anthropic') expect(sent.match(/call_[0-9a-f]{32}/g)).toEqual(Array(2).fill(expect.any(String)));
  });

  test('images of users and tools are sent; other files are named', async () => {
    const image = { type: 'file' as const, name: 'a.png', mimeType: 'image/png', bytes: 5, blob: 'x' };
    const archive = { ...image, name: 'a.zip', mimeType: 'application/zip' };
    const calls = [{ id: 'c1', name: 'look', args: {} }];
    endpoint.script(sending(...events({ calls })), sending(...events({ text: 'a sea' })));
    const asked: TranscriptItem = { role: 'user', content: [{ type: 'text', text: 'what is it?' }, image, archive] };
    const answer = await read(provider, requestOf({ transcript: [asked], tools: [LOOK] }));
    const seen: TranscriptItem = {
      role: 'tool',
      toolCallId: 'c1',
      name: 'look',
      content: 'seen',
      files: [image, archive],
    };
    await read(provider, requestOf({ transcript: [asked, messageOf(answer), seen], tools: [LOOK] }));
    const base64 = Buffer.from('image').toString('base64');
    const sent = JSON.stringify(endpoint.requests[1]?.body);
    expect([sent.split(base64).length, sent.split('a.zip (application/zip, 5 B)').length]).toEqual([3, 2]);
  });

  test.skipIf(kind === 'mistral')('a refusal ends the answer', async () => {
    endpoint.script(sending(...events({ refusal: 'I cannot do that.' })));
    const answer = await read(provider);
    if (kind === 'google') expect(answer.finishReason).toBe('content_filter');
    else expect(answer).toMatchObject({ refusal: 'I cannot do that.' });
  });

  test('a limit of output tokens ends the answer with `length`', async () => {
    endpoint.script(sending(...events({ text: 'and so on and', stop: 'length' })));
    expect(await read(provider)).toMatchObject({ content: 'and so on and', finishReason: 'length' });
  });

  test.runIf(kind === 'anthropic')('cache_control marks the system prompt and the last message', async () => {
    endpoint.script(sending(...events({ text: 'ok' })));
    const transcript: TranscriptItem[] = [USER, { role: 'user', content: [{ type: 'text', text: 'really?' }] }];
    await read(provider, requestOf({ transcript, params: { cache_control: { type: 'ephemeral', ttl: '1h' } } }));
    const marked = { cache_control: { type: 'ephemeral', ttl: '1h' } };
    const { system, messages } = endpoint.requests[0]?.body ?? {};
    expect(system).toMatchObject([{ text: 'Be brief.', ...marked }]);
    const parts = messages.flatMap(({ content }: { content: object[] }) => content);
    expect(parts).toMatchObject([{ text: 'hi' }, { text: 'really?', ...marked }]);
    expect(parts[0]).not.toHaveProperty('cache_control');
    const wrong = read(provider, requestOf({ params: { cache_control: { type: 'forever' } } }));
    await expect(wrong).rejects.toMatchObject({
      failure: 'bad_request',
      message: expect.stringContaining('ephemeral'),
    });
  });

  describe('the JSON Schema of an answer', () => {
    const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
    const responseFormat = { type: 'json_schema' as const, json_schema: { name: 'place', schema } };

    test('is sent in the form of the protocol', async () => {
      endpoint.script(sending(...events({ text: '{"city":"Nara"}' })));
      const model = {
        anthropic: 'claude-sonnet-4-5',
        google: 'gemini-3-pro-preview',
        'openai-responses': 'm-1',
        mistral: 'm-1',
      }[kind];
      const answer = await read(provider, requestOf({ model, responseFormat, tools: [LOOK] }));
      expect(answer).toMatchObject({ content: '{"city":"Nara"}', finishReason: 'stop' });
      const sent = {
        anthropic: { output_config: { format: { type: 'json_schema', schema } } },
        google: { generationConfig: { responseMimeType: 'application/json', responseJsonSchema: schema } },
        'openai-responses': { text: { format: { type: 'json_schema', name: 'place', schema } } },
        mistral: { response_format: { type: 'json_schema', json_schema: { name: 'place', schema } } },
      };
      expect(endpoint.requests[0]?.body).toMatchObject(sent[kind]);
    });

    test.runIf(kind === 'anthropic' || kind === 'google')(
      'is that of a tool for models without such a form',
      async () => {
        endpoint.script(sending(...events({ calls: [{ id: 'c1', name: 'json', args: { city: 'Nara' } }] })));
        const model = kind === 'google' ? 'gemini-2.5-flash' : 'claude-3-5-haiku-20241022';
        const answer = await read(provider, requestOf({ model, responseFormat, tools: [LOOK] }));
        expect(answer).toMatchObject({ content: '{"city":"Nara"}', finishReason: 'stop', toolCalls: [] });
      },
    );
  });

  test('reasoning_effort is sent in the form of the protocol', async () => {
    endpoint.script(sending(...events({ text: 'ok' })));
    await read(provider, requestOf({ params: { reasoning_effort: 'low' } }));
    const sent = {
      anthropic: { thinking: { type: 'enabled', budget_tokens: expect.any(Number) } },
      google: { generationConfig: { thinkingConfig: { thinkingBudget: expect.any(Number), includeThoughts: true } } },
      'openai-responses': { reasoning: { effort: 'low', summary: 'auto' }, include: ['reasoning.encrypted_content'] },
      // The adapter sends this for models that it does not list.
      mistral: { reasoning_effort: 'high' },
    };
    expect(endpoint.requests[0]?.body).toMatchObject(sent[kind]);
    endpoint.script(sending(...events({ text: 'ok' })));
    const unknown = read(provider, requestOf({ params: { reasoning_effort: 'heroic' } }));
    // The protocol has no list of them: OpenAI itself adds some from time to time.
    if (kind === 'openai-responses') expect(await unknown).toMatchObject({ content: 'ok' });
    else
      await expect(unknown).rejects.toMatchObject({ failure: 'bad_request', message: expect.stringMatching(/heroic/) });
  });

  test('a limit of the tokens for reasoning is sent where the protocol has one', async () => {
    endpoint.script(...Array.from({ length: 3 }, () => sending(...events({ text: 'ok' }))));
    await read(provider, requestOf({ params: { reasoning_effort: 'low' }, options: { reasoning_tokens: 500 } }));
    await read(provider, requestOf({ params: { reasoning_effort: 'none' } }));
    await read(provider, requestOf({ params: { reasoning_effort: 'low' }, options: { reasoning_tokens: 0 } }));
    const sent = {
      anthropic: [
        { thinking: { budget_tokens: 1_024 } },
        { thinking: { type: 'disabled' } },
        { thinking: { budget_tokens: 1_024 } },
      ],
      google: [
        { generationConfig: { thinkingConfig: { thinkingBudget: 500, includeThoughts: true } } },
        { generationConfig: { thinkingConfig: { thinkingBudget: 0 } } },
        { generationConfig: { thinkingConfig: { thinkingBudget: 0 } } },
      ],
      'openai-responses': [
        { reasoning: { effort: 'low' } },
        { reasoning: { effort: 'none' } },
        { reasoning: { effort: 'low' } },
      ],
      mistral: [{ reasoning_effort: 'high' }, { reasoning_effort: 'none' }, { reasoning_effort: 'high' }],
    };
    const bodies = endpoint.requests.map(({ body }) => body);
    expect(bodies).toMatchObject(sent[kind]);
    expect(JSON.stringify(bodies)).not.toContain('reasoning_tokens');
    expect(JSON.stringify(bodies.slice(1))).not.toContain('includeThoughts');
  });

  test('a model that is to answer gets the tools, and may not call them', async () => {
    endpoint.script(sending(...events({ text: 'ok' })));
    await read(provider, requestOf({ tools: [LOOK], toolChoice: 'none' }));
    const sent = {
      anthropic: { tools: [{ name: 'look' }], tool_choice: { type: 'none' } },
      google: { toolConfig: { functionCallingConfig: { mode: 'NONE' } } },
      'openai-responses': { tools: [{ name: 'look' }], tool_choice: 'none' },
      mistral: { tools: [{ type: 'function', function: { name: 'look' } }], tool_choice: 'none' },
    };
    expect(endpoint.requests[0]?.body).toMatchObject(sent[kind]);
  });

  test('the options that the protocol has are sent', async () => {
    const given = { presence_penalty: 0.1, frequency_penalty: 0.2, seed: 7, metadata: { team: 'a' } };
    const options = Object.fromEntries(Object.entries(given).filter(([name]) => target.options.has(name as never)));
    for (const toolChoice of ['required', { tool: 'look' }] as const) {
      endpoint.script(sending(...events({ text: 'ok' })));
      await read(provider, requestOf({ options, tools: [LOOK], toolChoice }));
    }
    const google = { presencePenalty: 0.1, frequencyPenalty: 0.2, seed: 7 };
    const functionCallingConfig = { mode: 'ANY', allowedFunctionNames: ['look'] };
    const sent = {
      anthropic: [{ tool_choice: { type: 'any' } }, { tool_choice: { type: 'tool', name: 'look' } }],
      google: [
        { generationConfig: google, toolConfig: { functionCallingConfig: { mode: 'ANY' } } },
        { generationConfig: google, toolConfig: { functionCallingConfig } },
      ],
      'openai-responses': [
        { metadata: { team: 'a' }, tool_choice: 'required' },
        { metadata: { team: 'a' }, tool_choice: { type: 'function', name: 'look' } },
      ],
      mistral: [
        { presence_penalty: 0.1, frequency_penalty: 0.2, random_seed: 7, tool_choice: 'any' },
        { tool_choice: { type: 'function', function: { name: 'look' } } },
      ],
    };
    expect(endpoint.requests.map(({ body }) => body)).toMatchObject(sent[kind]);
  });

  test('parameters are passed on', async () => {
    endpoint.script(sending(...events({ text: 'ok' })));
    const params = { max_tokens: 321, temperature: 0.25, top_p: 0.75 };
    await read(provider, requestOf({ params }));
    const sent = JSON.stringify(endpoint.requests[0]?.body);
    for (const value of ['321', '0.25', '0.75']) expect(sent).toContain(value);
  });

  test.each<[number, Partial<ModelError>]>([
    [429, { failure: 'rate_limited', isRetryable: true, isRefusal: true }],
    [503, { failure: 'overloaded', isRetryable: true, isRefusal: true }],
    [529, { failure: 'overloaded', isRetryable: true }],
    [504, { failure: 'timeout', isRetryable: true }],
    [401, { failure: 'auth', isRetryable: false }],
    [400, { failure: 'bad_request', isRetryable: false }],
    [404, { failure: 'refused_model', isRetryable: false }],
  ])('status %i', async (status, expected) => {
    endpoint.script(failing(protocol.error(status, 'the reason is this'), status, { 'retry-after': '7' }));
    await expect(read(provider)).rejects.toMatchObject({
      ...expected,
      status,
      message: expect.stringContaining('the reason is this'),
      retryAfterMs: 7_000,
    });
    // The adapter does not retry by itself.
    expect(endpoint.requests).toHaveLength(1);
  });

  test.each([301, 302, 307, 308])(
    'a redirect with status %i is an error, and nothing is sent to where it leads',
    async (status) => {
      const other = await startEndpoint();
      onTestFinished(() => other.stop());
      endpoint.script(
        (response) => void response.writeHead(status, { location: `${other.url}/stolen?key=secret` }).end(),
      );
      const { origin } = new URL(other.url);
      await expect(read(provider)).rejects.toMatchObject({
        failure: 'bad_request',
        message: expect.stringContaining(`redirects to ${origin}, which is not followed`),
      });
      expect([endpoint.requests.length, other.requests.length]).toEqual([1, 0]);
    },
  );

  test('an error that is an HTML page', async () => {
    endpoint.script((response) => void response.writeHead(502).end('<html>bad gateway</html>'));
    await expect(read(provider)).rejects.toMatchObject({ failure: 'overloaded' });
  });

  test.each(['overloaded', 'bad_request'] as const)('%s in mid-stream', async (failure) => {
    const [first = '', second = ''] = events({ text: 'I was saying' }).slice(0, 4);
    endpoint.script(sending(first, second, protocol.lateError(failure, 'the reason is this')));
    await expect(read(provider)).rejects.toMatchObject({
      failure,
      message: expect.stringContaining('the reason is this'),
    });
  });

  const broken: Record<string, EndpointScript> = {
    'a regular end in the middle': sending(...events({ text: 'I was saying' }).slice(0, -2)),
    'a connection that is cut': async (response) => {
      response.writeHead(200, EVENTS);
      for (const event of events({ text: 'I was saying' }).slice(0, -2)) {
        await new Promise((resolve) => void response.write(event, resolve));
      }
      response.destroy();
    },
    'an event that is not JSON': (response) => {
      response.writeHead(200, EVENTS);
      response.end(`${events({ text: 'I was saying' }).slice(0, 3).join('')}data: {"choices": [{"ind\n\n`);
    },
  };
  test.each(Object.entries(broken))('%s is a broken stream', async (_, script) => {
    endpoint.script(script);
    await expect(read(provider)).rejects.toMatchObject({ failure: 'broken_stream', isRetryable: true });
  });

  test('a complete answer ends although its server does not close the connection', async () => {
    const closed = Promise.withResolvers<void>();
    endpoint.script((response) => {
      response.on('close', () => closed.resolve());
      response.writeHead(200, EVENTS).write(events({ text: 'that is all' }).join(''));
    });
    const answer = await read(open(3600).provider);
    expect(answer).toMatchObject({ content: 'that is all', finishReason: 'stop', usage: { outputTokens: 5 } });
    await closed.promise;
  });

  test('a server that cannot be reached', async () => {
    await endpoint.stop();
    await expect(read(provider)).rejects.toMatchObject({ failure: 'connection', isRetryable: true });
    endpoint = await startEndpoint();
  });

  test.each([
    ['from the beginning', () => undefined],
    ['in mid-stream', (response) => void response.writeHead(200, EVENTS).write(events({ text: 'I was' })[0])],
  ] satisfies [string, EndpointScript][])('silence %s is a stall', async (_, script) => {
    endpoint.script(script);
    await expect(read(provider)).rejects.toMatchObject({
      failure: 'stalled',
      message: expect.stringContaining('1 s'),
    });
  });

  test('a cancelled call ends without an error, and closes its connection', async () => {
    const closed = Promise.withResolvers<void>();
    const controller = new AbortController();
    endpoint.script((response) => {
      response.on('close', () => closed.resolve());
      response.writeHead(200, EVENTS).write(events({ text: 'I was saying' }).slice(0, 4).join(''));
    });
    const chunks = open(3600).provider.stream(requestOf(), controller.signal);
    for await (const { content } of chunks) if (content) controller.abort();
    await closed.promise;
  });
});
