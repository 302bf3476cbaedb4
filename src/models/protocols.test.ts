import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  EVENTS,
  failing,
  PROTOCOLS,
  sending,
  startEndpoint,
  type Endpoint,
  type EndpointScript,
} from '../../test/support/model-protocols.ts';
import { applyDelta, emptyText, type MessageText } from '../core/message.ts';
import type { FinishReason, ModelMessage, Usage } from '../core/records.ts';
import { placedParts, storedSections } from '../core/sections.ts';
import type { TranscriptItem } from '../core/transcript.ts';
import { Metrics } from '../telemetry/metrics.ts';
import type { ModelError } from './model-error.ts';
import { openProviders } from './open-providers.ts';
import type { ModelProvider, ModelRequest } from './provider.ts';
import type { ModelTarget } from './providers.ts';
import { SectionDeltas } from './section-deltas.ts';

const log = pino({ level: 'silent' });
const USER: TranscriptItem = { role: 'user', content: [{ type: 'text', text: 'hi' }] };
const LOOK = { name: 'look', description: 'looks', parameters: { type: 'object', properties: { at: {} } } };
const never = new AbortController().signal;

function requestOf(more: Partial<ModelRequest> = {}): ModelRequest {
  return {
    model: 'm-1',
    params: {},
    system: 'Be brief.',
    instructionsLength: 9,
    skillsLength: 0,
    transcript: [USER],
    tools: [],
    responseFormat: undefined,
    fileContent: () => Promise.resolve(Buffer.from('image').toString('base64')),
    ...more,
  };
}

interface Answer extends MessageText {
  usage: Usage | undefined;
  finishReason: FinishReason | undefined;
  blocks: unknown[];
}

/** Reads an answer to its end. */
async function read(provider: ModelProvider, request = requestOf(), signal = never): Promise<Answer> {
  const text: MessageText = emptyText();
  const sections = new SectionDeltas();
  const answer = { usage: undefined as Usage | undefined, finishReason: undefined as FinishReason | undefined };
  const blocks: unknown[] = [];
  for await (const chunk of provider.stream(request, signal)) {
    const { toolCalls = [], usage, finishReason, providerFields, ...texts } = chunk;
    const info = { type: 'system' as const, name: 'look' };
    const { content, refusal, reasoning } = texts;
    const begun = sections.before(chunk, text);
    applyDelta(text, {
      ...(content && { content }),
      ...(refusal && { refusal }),
      ...(reasoning && { reasoning }),
      toolCalls: toolCalls.map((call) => ({ ...call, ...(call.name && { info }) })),
      ...(begun.length > 0 && { sections: begun }),
    });
    const more = sections.after(chunk, text);
    if (more.length > 0) applyDelta(text, { sections: more });
    if (usage) answer.usage = usage;
    if (finishReason) answer.finishReason = finishReason;
    if (Array.isArray(providerFields?.['blocks'])) blocks.push(...providerFields['blocks']);
  }
  return { ...text, ...answer, blocks };
}

/** The answer as the log keeps it. */
function messageOf({ content, refusal, reasoning, toolCalls, sections, blocks }: Answer): TranscriptItem {
  const message: ModelMessage = {
    kind: 'model.message',
    id: 'msg_1',
    at: '2026-01-01T00:00:00.000Z',
    threadId: 'main',
    content,
    refusal,
    reasoning,
    toolCalls: toolCalls.map((call) => ({
      ...call,
      route: { to: 'server', effect: 'once', approval: false, callHash: '' },
    })),
    ...storedSections(sections),
    finishReason: 'tool_calls',
    providerFields: { blocks },
  };
  return { role: 'assistant', message };
}

function resultOf(toolCallId: string, content: string): TranscriptItem {
  return { role: 'tool', toolCallId, name: 'look', content, files: [] };
}

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

  function open(idleSeconds: number): ModelTarget {
    const config = { kind, apiKey: 'the-key', baseUrl: endpoint.url, headers: { 'x-team': 'a' }, limits: undefined };
    const access = { name: '', defaultName: 'p', providers: new Map([['p', { ...config, models: new Map() }]]) };
    return openProviders(access, { idleSeconds, metrics: new Metrics(), log, shared: undefined }).resolve('m-1');
  }

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
      { id: 'c1', name: 'look', args: { at: 'sea' } },
      { id: 'c2', name: 'look', args: {} },
    ];
    endpoint.script(sending(...events({ text: 'wait ', calls })), sending(...events({ text: 'done' })));
    const answer = await read(provider, requestOf({ tools: [LOOK] }));
    expect(answer.toolCalls.map(({ id, name, arguments: args }) => [id, name, JSON.parse(args)])).toEqual([
      ['c1', 'look', { at: 'sea' }],
      ['c2', 'look', {}],
    ]);
    const transcript = [USER, messageOf(answer), resultOf('c1', 'blue'), resultOf('c2', 'green')];
    expect(await read(provider, requestOf({ tools: [LOOK], transcript }))).toMatchObject({ content: 'done' });
    const sent = JSON.stringify(endpoint.requests[1]?.body);
    for (const part of ['wait ', '"c1"', '"c2"', 'blue', 'green', 'sea']) expect(sent).toContain(part);
  });

  test('reasoning and its signature go back across a tool step, unchanged and before the call', async () => {
    const reasoning = { text: 'the sea, then', signature: 'SIGNATURE-1' };
    const calls = [{ id: 'c1', name: 'look', args: { at: 'sea' }, signature: 'SIGNATURE-1' }];
    endpoint.script(
      sending(...events({ reasoning, calls, usage: { input: 10, output: 9, reasoning: 6 } })),
      sending(...events({ text: 'done' })),
    );
    const request = requestOf({ tools: [LOOK], params: { reasoning_effort: 'low' } });
    const answer = await read(provider, request);
    expect(answer).toMatchObject({ reasoning: 'the sea, then', content: '' });
    if (kind !== 'anthropic') expect(answer.usage).toMatchObject({ outputTokens: 9, reasoningTokens: 6 });
    await read(provider, { ...request, transcript: [USER, messageOf(answer), resultOf('c1', 'blue')] });
    const sent = JSON.stringify(endpoint.requests[1]?.body);
    expect(sent.split('SIGNATURE-1')).toHaveLength(2);
    expect(sent.indexOf('the sea, then')).toBeLessThan(sent.indexOf('"c1"'));
    expect(sent).toContain('the sea, then');
  });

  describe.skipIf(kind === 'google')('the web search of the provider', () => {
    const found = [
      { url: 'https://a.example/sea', title: 'The sea', age: 'May 3', secret: 'SECRET-A' },
      { url: 'https://b.example', title: 'More', secret: 'SECRET-B' },
    ];
    const search = { id: 'search_1', query: 'colour of the sea', found };
    const webSearch = { allowed_domains: ['a.example'], max_uses: 3, user_location: { city: 'Bonn', country: 'DE' } };

    test('its options are sent, beside the tools', async () => {
      endpoint.script(sending(...events({ text: 'ok' })), sending(...events({ text: 'ok' })));
      const location = { type: 'approximate', city: 'Bonn', country: 'DE' };
      const sent = {
        anthropic: {
          tools: [
            { name: 'look' },
            {
              type: 'web_search_20250305',
              name: 'web_search',
              max_uses: 3,
              allowed_domains: ['a.example'],
              user_location: location,
            },
          ],
        },
        google: {},
        'openai-responses': {
          tools: [
            { type: 'function', name: 'look' },
            { type: 'web_search', filters: { allowed_domains: ['a.example'] }, user_location: location },
          ],
          max_tool_calls: 3,
          include: ['web_search_call.action.sources'],
        },
      };
      await read(provider, requestOf({ tools: [LOOK], webSearch }));
      expect(endpoint.requests[0]?.body).toMatchObject(sent[kind]);
      await read(provider, requestOf({ webSearch: {} }));
      expect(endpoint.requests[1]?.body.tools).toHaveLength(1);
    });

    test('what it does and finds stands before the text that cites it, and goes back in its place', async () => {
      const reasoning = { text: 'I look', signature: 'SIGNATURE-1' };
      const reply = { reasoning, search, text: 'It is blue.' };
      endpoint.script(sending(...events(reply)), sending(...events({ text: 'done' })));
      const request = requestOf({ webSearch: {}, params: { reasoning_effort: 'low' } });
      const answer = await read(provider, request);
      const { sections = [] } = answer;
      const action = { type: 'search', queries: ['colour of the sea'] };
      const sources = found.map(({ url, title, secret: signature }) =>
        kind === 'anthropic' ? { url, title, signature } : { url },
      );
      expect(placedParts(answer)).toMatchObject([
        { type: 'reasoning' },
        { type: 'hosted', hosted: { type: 'call', id: 'search_1', action, status: 'completed' } },
        { type: 'hosted', hosted: { type: 'result', id: 'search_1', sources } },
        { type: 'content' },
      ]);
      const citations = found.map(({ url, title }) => ({ source: url, title }));
      expect(sections.flatMap((one) => one.citations ?? [])).toMatchObject(citations);
      await read(provider, { ...request, transcript: [USER, messageOf(answer), USER] });
      const sent = JSON.stringify(endpoint.requests[1]?.body);
      const places = ['I look', 'colour of the sea', 'It is blue.'].map((text) => sent.indexOf(text));
      expect(places).toEqual(places.toSorted((a, b) => a - b));
      expect(places[0]).toBeGreaterThan(0);
    });

    test.runIf(kind === 'anthropic')(
      'what it needs of a search and its citations goes back, or nothing of it',
      async () => {
        endpoint.script(sending(...events({ search, text: 'It is blue.' })));
        const answer = await read(provider, requestOf({ webSearch: {} }));
        const [, { sources } = { sources: [] }] = (answer.sections ?? []).flatMap(
          ({ hosted }) => hosted ?? [],
        ) as never[];
        expect(sources).toMatchObject([{ pageAge: 'May 3' }, {}]);
        const again = async (given: Answer, more: Partial<ModelRequest>) => {
          endpoint.script(sending(...events({ text: 'done' })));
          await read(provider, requestOf({ transcript: [USER, messageOf(given), USER], ...more }));
          return endpoint.requests.at(-1)?.body.messages[1].content;
        };
        const [a] = found;
        expect(await again(answer, { webSearch: {} })).toMatchObject([
          { type: 'server_tool_use', id: 'search_1', name: 'web_search', input: { query: 'colour of the sea' } },
          {
            type: 'web_search_tool_result',
            tool_use_id: 'search_1',
            content: [{ type: 'web_search_result', url: a?.url, page_age: 'May 3', encrypted_content: 'SECRET-A' }, {}],
          },
          {
            type: 'text',
            text: 'It is blue.',
            citations: [
              {
                type: 'web_search_result_location',
                url: a?.url,
                title: 'The sea',
                cited_text: 'from The sea',
                encrypted_index: 'INDEX-SECRET-A',
              },
              {},
            ],
          },
        ]);
        const plain = [{ type: 'text', text: 'It is blue.' }];
        expect(await again(answer, {})).toEqual(plain);
        const cut = structuredClone(answer);
        for (const { hosted } of cut.sections ?? []) if (hosted?.type === 'result') delete hosted.sources[1]?.signature;
        expect(await again(cut, { webSearch: {} })).toEqual(plain);
      },
    );

    test.runIf(kind === 'anthropic')('an answer that is paused after many searches is cut off', async () => {
      endpoint.script(sending(...events({ search }).map((event) => event.replace('end_turn', 'pause_turn'))));
      expect(await read(provider, requestOf({ webSearch: {} }))).toMatchObject({ finishReason: 'length' });
    });

    test.runIf(kind === 'anthropic')(
      'each text keeps its citations, and a search that has failed says why',
      async () => {
        const send = (data: { type: string; [field: string]: unknown }) =>
          `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
        const [start = '', , ...rest] = events({});
        const blocks = [
          [{ type: 'server_tool_use', id: 's1', name: 'web_search', input: {} }],
          [
            {
              type: 'web_search_tool_result',
              tool_use_id: 's1',
              content: { type: 'web_search_tool_result_error', error_code: 'max_uses_exceeded' },
            },
          ],
          [
            { type: 'text', text: '' },
            { type: 'text_delta', text: 'One, ' },
          ],
          [
            { type: 'text', text: '' },
            { type: 'text_delta', text: 'two' },
            {
              type: 'citations_delta',
              citation: {
                type: 'web_search_result_location',
                url: 'https://a.example',
                title: null,
                cited_text: '2',
                encrypted_index: 'I',
              },
            },
          ],
          [
            { type: 'text', text: '' },
            { type: 'text_delta', text: '.' },
          ],
        ].flatMap(([block, ...deltas], index) => [
          send({ type: 'content_block_start', index, content_block: block }),
          ...deltas.map((delta) => send({ type: 'content_block_delta', index, delta })),
          send({ type: 'content_block_stop', index }),
        ]);
        endpoint.script(sending(start, ...blocks, ...rest));
        const answer = await read(provider, requestOf({ webSearch: {} }));
        expect(answer.content).toBe('One, two.');
        expect(placedParts(answer)).toMatchObject([
          { hosted: { type: 'call', status: 'failed' } },
          { hosted: { type: 'result', sources: [], errorCode: 'max_uses_exceeded' } },
          { from: 0, to: 5, citations: [] },
          { from: 5, to: 8, citations: [{ source: 'https://a.example', citedText: '2', signature: 'I' }] },
          { from: 8, to: 9, citations: [] },
        ]);
      },
    );

    test('an answer of it alone is an answer', async () => {
      endpoint.script(sending(...events({ search })));
      const { sections, finishReason, content } = await read(provider, requestOf({ webSearch: {} }));
      expect([sections?.length, finishReason, content]).toEqual([2, 'stop', '']);
    });
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

  test('what other providers accept, and this one does not, is not in its request', async () => {
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

  test('a refusal ends the answer', async () => {
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
      const model = { anthropic: 'claude-sonnet-4-5', google: 'gemini-3-pro-preview', 'openai-responses': 'm-1' }[kind];
      const answer = await read(provider, requestOf({ model, responseFormat, tools: [LOOK] }));
      expect(answer).toMatchObject({ content: '{"city":"Nara"}', finishReason: 'stop' });
      const sent = {
        anthropic: { output_config: { format: { type: 'json_schema', schema } } },
        google: { generationConfig: { responseMimeType: 'application/json', responseJsonSchema: schema } },
        'openai-responses': { text: { format: { type: 'json_schema', name: 'place', schema } } },
      };
      expect(endpoint.requests[0]?.body).toMatchObject(sent[kind]);
    });

    test.skipIf(kind === 'openai-responses')('is that of a tool for models without such a form', async () => {
      endpoint.script(sending(...events({ calls: [{ id: 'c1', name: 'json', args: { city: 'Nara' } }] })));
      const model = kind === 'google' ? 'gemini-2.5-flash' : 'claude-3-5-haiku-20241022';
      const answer = await read(provider, requestOf({ model, responseFormat, tools: [LOOK] }));
      expect(answer).toMatchObject({ content: '{"city":"Nara"}', finishReason: 'stop', toolCalls: [] });
    });
  });

  test('reasoning_effort is sent in the form of the protocol', async () => {
    endpoint.script(sending(...events({ text: 'ok' })));
    await read(provider, requestOf({ params: { reasoning_effort: 'low' } }));
    const sent = {
      anthropic: { thinking: { type: 'enabled', budget_tokens: expect.any(Number) } },
      google: { generationConfig: { thinkingConfig: { thinkingBudget: expect.any(Number), includeThoughts: true } } },
      'openai-responses': { reasoning: { effort: 'low', summary: 'auto' }, include: ['reasoning.encrypted_content'] },
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
    endpoint.script(sending(...events({ text: 'ok' })), sending(...events({ text: 'ok' })));
    await read(provider, requestOf({ params: { reasoning_effort: 'low' }, options: { reasoning_tokens: 500 } }));
    await read(provider, requestOf({ params: { reasoning_effort: 'none' } }));
    const sent = {
      anthropic: [{ thinking: { budget_tokens: 1_024 } }, { thinking: { type: 'disabled' } }],
      google: [
        { generationConfig: { thinkingConfig: { thinkingBudget: 500, includeThoughts: true } } },
        { generationConfig: { thinkingConfig: { thinkingBudget: 0 } } },
      ],
      'openai-responses': [{ reasoning: { effort: 'low' } }, { reasoning: { effort: 'none' } }],
    };
    const bodies = endpoint.requests.map(({ body }) => body);
    expect(bodies).toMatchObject(sent[kind]);
    expect(JSON.stringify(bodies)).not.toContain('reasoning_tokens');
    expect(JSON.stringify(bodies[1])).not.toContain('includeThoughts');
  });

  test('a model that is to answer gets the tools, and may not call them', async () => {
    endpoint.script(sending(...events({ text: 'ok' })));
    await read(provider, requestOf({ tools: [LOOK], toolChoice: 'none' }));
    const sent = {
      anthropic: { tools: [{ name: 'look' }], tool_choice: { type: 'none' } },
      google: { toolConfig: { functionCallingConfig: { mode: 'NONE' } } },
      'openai-responses': { tools: [{ name: 'look' }], tool_choice: 'none' },
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
    await expect(read(provider)).rejects.toMatchObject({ failure: 'stalled', message: expect.stringContaining('1 s') });
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
