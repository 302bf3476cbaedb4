import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { messageOf, openModel, read, requestOf, LOOK, USER, type Answer } from '../../test/support/model-answers.ts';
import {
  failing,
  SEARCHING,
  sending,
  startEndpoint,
  type Endpoint,
  type Reply,
} from '../../test/support/model-protocols.ts';
import { orderedParts } from '../core/sections.ts';
import type { ModelProvider, ModelRequest } from './provider.ts';

describe.each(SEARCHING)('the web search of $kind', ({ kind, events }) => {
  let endpoint: Endpoint;
  let provider: ModelProvider;
  beforeEach(async () => {
    endpoint = await startEndpoint();
    ({ provider } = openModel(endpoint, kind));
  });
  afterEach(() => endpoint.stop());

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
      google: { tools: [{ googleSearch: {} }, { functionDeclarations: [{ name: 'look' }] }] },
      'openai-responses': {
        tools: [
          { type: 'function', name: 'look' },
          { type: 'web_search', filters: { allowed_domains: ['a.example'] }, user_location: location },
        ],
        max_tool_calls: 3,
        include: ['reasoning.encrypted_content', 'web_search_call.action.sources'],
      },
    };
    await read(provider, requestOf({ model: 'gemini-3-pro-preview', tools: [LOOK], webSearch }));
    expect(endpoint.requests[0]?.body).toMatchObject(sent[kind]);
    await read(provider, requestOf({ model: 'gemini-2.5-flash', webSearch: {} }));
    expect(endpoint.requests[1]?.body.tools).toHaveLength(1);
  });

  test.skipIf(kind === 'google')(
    'what it does and finds stands before the text that cites it, and goes back in its place',
    async () => {
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
      expect(orderedParts(answer)).toMatchObject([
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
    },
  );

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

  describe.runIf(kind === 'anthropic')('an answer that is paused after many searches', () => {
    const pausing = (reply: Reply) => sending(...events(reply).map((one) => one.replace('end_turn', 'pause_turn')));
    const sentLast = () => endpoint.requests.at(-1)?.body.messages;
    const usage = { input: 10, cached: 2, output: 5 };

    test('is continued after what it has said, unchanged, and is one answer', async () => {
      const second = { ...search, id: 'search_2', query: 'colour of the sky' };
      const reasoning = { text: 'I look', signature: 'SIGNATURE-1' };
      endpoint.script(
        pausing({ reasoning, search, text: 'It is ', usage }),
        pausing({ search: second, usage }),
        sending(...events({ text: 'blue.', usage })),
      );
      const answer = await read(provider, requestOf({ webSearch: {}, tools: [LOOK] }));
      expect(answer).toMatchObject({
        content: 'It is blue.',
        reasoning: 'I look',
        finishReason: 'stop',
        usage: { inputTokens: 30, cacheReadTokens: 6, outputTokens: 15 },
      });
      const calls = orderedParts(answer).flatMap((one) =>
        one.type === 'hosted' && one.hosted.type === 'call' ? one.hosted.id : [],
      );
      expect(calls).toEqual(['search_1', 'search_2']);
      const [first, ...more] = endpoint.requests.map(({ body }) => body);
      for (const body of more) expect({ ...body, messages: [] }).toEqual({ ...first, messages: [] });
      const said = [
        { type: 'thinking', thinking: 'I look', signature: 'SIGNATURE-1' },
        { type: 'server_tool_use', id: 'search_1', name: 'web_search', input: { query: 'colour of the sea' } },
        {
          type: 'web_search_tool_result',
          tool_use_id: 'search_1',
          content: [{ page_age: 'May 3', encrypted_content: 'SECRET-A' }, { page_age: null }],
        },
        { type: 'text', text: 'It is ', citations: [{ encrypted_index: 'INDEX-SECRET-A' }, {}] },
        { type: 'server_tool_use', id: 'search_2', input: { query: 'colour of the sky' } },
        { type: 'web_search_tool_result', tool_use_id: 'search_2' },
      ];
      expect(sentLast()).toMatchObject([{ role: 'user' }, { role: 'assistant', content: said }]);
      endpoint.script(sending(...events({ text: 'done' })));
      await read(provider, requestOf({ webSearch: {}, transcript: [USER, messageOf(answer), USER] }));
      const types = ['thinking', ...said.slice(1).map(({ type }) => type), 'text'];
      expect(sentLast()[1].content.map(({ type }: { type: string }) => type)).toEqual(types);
    });

    test('is continued before the result of its last search', async () => {
      const [call, result] = events({ search }).reduce<[string[], string[]]>(
        ([before, after], one) =>
          after.length > 0 || one.includes('web_search_tool_result')
            ? [before, [...after, one]]
            : [[...before, one], after],
        [[], []],
      );
      const [start = '', ...end] = events({});
      const paused = end.slice(-2).map((one) => one.replace('end_turn', 'pause_turn'));
      endpoint.script(sending(...call, ...paused), sending(start, ...result));
      const answer = await read(provider, requestOf({ webSearch: {} }));
      expect(sentLast()[1].content).toMatchObject([{ type: 'server_tool_use', id: 'search_1' }]);
      expect(sentLast()[1].content).toHaveLength(1);
      const action = { type: 'search', queries: ['colour of the sea'] };
      expect(orderedParts(answer)).toMatchObject([
        { hosted: { type: 'call', id: 'search_1', status: 'completed', action } },
        { hosted: { type: 'result', id: 'search_1' } },
      ]);
    });

    test('is given up after ten continuations', async () => {
      endpoint.script(...Array.from({ length: 12 }, () => pausing({ text: 'more ' })));
      await expect(read(provider, requestOf({ webSearch: {} }))).rejects.toMatchObject({
        isRetryable: false,
        message: 'the model continued its answer 10 times without coming to its end',
      });
      expect(endpoint.requests).toHaveLength(11);
    });

    test('ends with the error of a continuation', async () => {
      endpoint.script(pausing({ text: 'more ' }), failing({ type: 'error', error: { type: 'x', message: 'no' } }, 529));
      await expect(read(provider, requestOf({ webSearch: {} }))).rejects.toMatchObject({ failure: 'overloaded' });
    });
  });

  test.runIf(kind === 'anthropic')('each text keeps its citations, and a search that has failed says why', async () => {
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
    expect(orderedParts(answer)).toMatchObject([
      { hosted: { type: 'call', status: 'failed' } },
      { hosted: { type: 'result', sources: [], errorCode: 'max_uses_exceeded' } },
      { from: 0, to: 5, citations: [] },
      { from: 5, to: 8, citations: [{ source: 'https://a.example', citedText: '2', signature: 'I' }] },
      { from: 8, to: 9, citations: [] },
    ]);
  });

  test.skipIf(kind === 'google')('an answer of it alone is an answer', async () => {
    endpoint.script(sending(...events({ search })));
    const { sections, finishReason, content } = await read(provider, requestOf({ webSearch: {} }));
    expect([sections?.length, finishReason, content]).toEqual([2, 'stop', '']);
  });

  test.runIf(kind === 'google')('what was found, and for which characters of the text, comes at the end', async () => {
    const reasoning = { text: 'I look', signature: 'SIGNATURE-1' };
    endpoint.script(sending(...events({ reasoning, search, text: 'Blü, yes.' })), sending(...events({ text: 'done' })));
    const request = requestOf({ model: 'gemini-2.5-flash', webSearch: {} });
    const answer = await read(provider, request);
    const action = { type: 'search', queries: ['colour of the sea'] };
    const sources = found.map(({ url, title }) => ({ url, title }));
    const citations = sources.map(({ url: source, title }) => ({ source, title, startIndex: 0, endIndex: 9 }));
    expect(orderedParts(answer)).toMatchObject([
      { type: 'reasoning' },
      { type: 'content', citations },
      { hosted: { type: 'call', id: 'google_search', action, status: 'completed' } },
      { hosted: { type: 'result', id: 'google_search', sources } },
    ]);
    await read(provider, { ...request, transcript: [USER, messageOf(answer), USER] });
    const sent = JSON.stringify(endpoint.requests[1]?.body.contents);
    expect(sent).toContain('SIGNATURE-1');
    expect(sent).not.toContain('colour of the sea');
  });

  test.runIf(kind === 'google')('a search beside functions goes back with its signature', async () => {
    const toolCall = { toolType: 'GOOGLE_SEARCH_WEB', args: { queries: ['sea'] }, id: 's1' };
    const toolResponse = { toolType: 'GOOGLE_SEARCH_WEB', response: { suggestions: '<div>' }, id: 's1' };
    const parts = [{ toolCall, thoughtSignature: 'SIGNED' }, { toolResponse }];
    const [end = ''] = events({});
    const begin = `data: ${JSON.stringify({ candidates: [{ content: { role: 'model', parts } }] })}\n\n`;
    endpoint.script(
      sending(begin, ...events({ text: 'Blue.' }).slice(0, -1), end),
      sending(...events({ text: 'done' })),
    );
    const request = requestOf({ model: 'gemini-3-pro-preview', tools: [LOOK], webSearch: {} });
    const answer = await read(provider, request);
    expect(orderedParts(answer)).toMatchObject([
      { hosted: { type: 'call', id: 's1', action: { queries: ['sea'] }, status: 'completed' } },
      { hosted: { type: 'result', id: 's1', sources: [] } },
      { type: 'content' },
    ]);
    await read(provider, { ...request, transcript: [USER, messageOf(answer), USER] });
    expect(endpoint.requests[1]?.body.contents[1].parts).toMatchObject([...parts, { text: 'Blue.' }]);
  });

  test.runIf(kind === 'google')('a model that cannot have it beside other tools says so', async () => {
    endpoint.script(sending(...events({ text: 'ok' })));
    const both = read(provider, requestOf({ model: 'gemini-2.5-flash', tools: [LOOK], webSearch: {} }));
    await expect(both).rejects.toMatchObject({
      failure: 'bad_request',
      message: expect.stringContaining('web_search'),
    });
  });
});
