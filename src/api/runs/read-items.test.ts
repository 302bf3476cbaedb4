import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { ApiError } from '../http/errors.ts';
import { parsePart } from '../http/request.ts';
import { storedSections } from '../../core/sections.ts';
import { toModelParts } from './output-parts.ts';
import { runErrors } from './errors.ts';
import { readItems } from './read-items.ts';
import { encodeSignature } from './signature.ts';
import type { Capability } from './wire/agent-params.ts';
import { inputItems } from './wire/items.ts';
import type { AcceptedInput } from './supported-parts.ts';

const PNG = Buffer.from('picture').toString('base64');

const text = (value: string) => ({ type: 'text', text: value });
const user = (...content: unknown[]) => ({ type: 'message', role: 'user', content });
const assistant = (...content: unknown[]) => ({ type: 'message', role: 'assistant', content });
const toolMessage = (...content: unknown[]) => ({ type: 'message', role: 'tool', content });
const model = (...content: unknown[]) => ({ type: 'model', content });
const call = (id: string, args: object = { q: id }) => ({
  type: 'tool-call',
  tool_call_id: id,
  tool_name: 'look',
  args,
});
const result = (id: string, value = `result of ${id}`) => ({
  type: 'tool-result',
  tool_call_id: id,
  tool_name: 'look',
  content: [text(value)],
});
const tool = (id: string, value = `result of ${id}`, end: object = { is_error: false }) => ({
  type: 'tool',
  tool_call_id: id,
  tool_name: 'look',
  input: { q: id },
  output: [text(value)],
  ...end,
});
const hosted = { type: 'tool-call', tool_call_id: 'w1', call: { type: 'web_search', status: 'completed' } };
const hostedResult = {
  type: 'tool-result',
  tool_call_id: 'w1',
  result: { type: 'web_search', sources: [] },
  status: 'completed',
};
const image = { type: 'image', mime_type: 'image/png', data: PNG };
const audio = { type: 'audio', format: 'wav', data: PNG };

const source = (...content: unknown[]) => ({ type: 'source', source: 'https://a.test', title: 'Seas', content });

const hi = user(text('hi'));
const numbered = (count: number, name: string) =>
  Array.from({ length: count }, (_, i) => ({ ...call(`c${i}`), tool_name: name }));

const read = (...items: unknown[]) => readWithout([], ...items);

/** Reads a conversation with a model that lacks some capabilities. */
const readWithout = (missing: Capability[], ...items: unknown[]) => readWith({ missing: new Set(missing) }, ...items);

function readWith(accepted: Partial<AcceptedInput>, ...items: unknown[]) {
  const { input } = parsePart(z.object({ input: inputItems }), { input: items }, 'body');
  const audioTypes = new Set(['audio/wav', 'audio/mpeg']);
  return readItems(input, { audioTypes, ownImages: false, missing: new Set(), ...accepted });
}

/** Messages and results in short, and the calls of the last message with their results. */
function shape(...items: unknown[]) {
  const { conversation, repaired } = read(...items);
  return {
    items: conversation.items.map((item) => {
      if (item.role === 'tool') return `${item.toolCallId}: ${item.content}`;
      if (item.role === 'user') return `user: ${item.content.map((part) => part.type).join(' ')}`;
      return `model: ${[item.message.content, ...item.message.toolCalls.map(({ id }) => id)].join(' ').trim()}`;
    }),
    ...(conversation.last && {
      last: conversation.last.toolCalls.map(({ id, result: given }) => [id, given?.content]),
    }),
    repaired,
  };
}

function refused(...items: unknown[]) {
  try {
    return read(...items);
  } catch (error) {
    const { status, body } = runErrors.toResponse(error as ApiError);
    const { code, param } = (body as { error: { code: string; param?: string } }).error;
    return [status, code, param];
  }
}

describe('the end of the input decides', () => {
  test('a user message: the model is called', () => {
    expect(shape(user(text('hi')))).toEqual({ items: ['user: text'], repaired: [] });
  });

  test.each([model, assistant])('calls without a result are run', (message) => {
    expect(shape(user(text('hi')), message(text('Looking.'), call('a'), call('b')))).toEqual({
      items: ['user: text'],
      last: [
        ['a', undefined],
        ['b', undefined],
      ],
      repaired: [],
    });
  });

  test('the parts of a message keep their order, with what its provider did and the sources of its texts', () => {
    const action = { type: 'search', queries: ['sea'] };
    const sources = [{ url: 'https://a.example', title: 'Sea', page_age: 'May', signature: 'S' }];
    const citations = [
      { source: 'https://a.example', cited_text: 'blue', start_index: 0, end_index: 4, signature: 'C' },
    ];
    const parts = [
      text('Well.'),
      { ...hosted, call: { type: 'web_search', action, status: 'completed' } },
      { ...hostedResult, result: { type: 'web_search', sources } },
      { ...text('Blue,'), citations },
      text('it is.'),
    ];
    const { last } = read(user(text('hi')), model(...parts)).conversation;
    if (!last) throw new Error('the conversation ends with a message of the model');
    const { content, refusal, reasoning, sections } = last;
    const rest = { id: 'm', at: '', threadId: 'main', toolCalls: [], finishReason: 'stop' as const };
    const message = {
      kind: 'model.message' as const,
      ...rest,
      content,
      refusal,
      reasoning,
      ...storedSections(sections),
    };
    expect(toModelParts(message)).toEqual(parts);
    const failed = { type: 'web_search', sources: [], error_code: 'max_uses_exceeded' };
    const [, item] = read(user(text('hi')), model({ ...hostedResult, result: failed }, text('No.')), hi).conversation
      .items;
    if (item?.role !== 'assistant') throw new Error('the second item is of the model');
    expect(toModelParts(item.message)[0]).toEqual({ ...hostedResult, result: failed, status: 'failed' });
  });

  test('a message without calls, or with those of the provider only, is the answer', () => {
    const { conversation } = read(
      user(text('hi')),
      model(text('Hel'), text('lo'), { type: 'reasoning', text: 'greet' }),
    );
    expect(conversation.last).toMatchObject({ content: 'Hello', reasoning: 'greet', refusal: '', toolCalls: [] });
    expect(shape(user(text('hi')), model(hosted, hostedResult)).last).toEqual([]);
  });

  test.each([
    ['tool items', [tool('b')]],
    ['a tool message', [toolMessage(result('b'))]],
    ['tool messages and items', [toolMessage(result('b')), toolMessage(result('b', 'again')), tool('b', 'and again')]],
  ])('%s: the calls without a result are run', (_, results) => {
    expect(shape(user(text('hi')), model(call('a'), call('b')), ...results)).toEqual({
      items: ['user: text'],
      last: [
        ['a', undefined],
        ['b', 'result of b'],
      ],
      repaired: [],
    });
  });

  test('nothing is refused', () => {
    expect(refused()).toEqual([422, 'invalid_items', 'input']);
    expect(refused(toolMessage(hostedResult))).toEqual([422, 'invalid_items', 'input']);
  });
});

describe('earlier messages', () => {
  test('results follow their calls in call order, in any order of the items', () => {
    const items = [
      user(text('hi')),
      model(call('a'), call('b')),
      toolMessage(result('b')),
      tool('a'),
      user(text('and?')),
    ];
    expect(shape(...items)).toEqual({
      items: ['user: text', 'model: a b', 'a: result of a', 'b: result of b', 'user: text'],
      repaired: [],
    });
  });

  test('calls without a result are answered as cancelled', () => {
    const { items, repaired } = shape(user(text('hi')), model(call('a'), call('b')), tool('a'), user(text('stop')));
    expect(items).toEqual([
      'user: text',
      'model: a b',
      'a: result of a',
      expect.stringMatching(/^b: .*not executed/),
      'user: text',
    ]);
    expect(repaired).toEqual(['b']);
    expect(shape(model(call('a')), model(text('Done.'))).repaired).toEqual(['a']);
  });

  test('results belong to the nearest message, since ids may repeat', () => {
    const items = [model(call('a')), tool('a', 'first'), model(call('a')), tool('a', 'second'), user(text('ok'))];
    expect(shape(...items).items).toEqual(['model: a', 'a: first', 'model: a', 'a: second', 'user: text']);
  });

  test('messages that have nothing for a provider are left out', () => {
    expect(shape(model(hosted), model({ type: 'reasoning', text: 'hm' }), user(text('hi'))).items).toEqual([
      'user: text',
    ]);
  });
});

describe('results', () => {
  const given = (...content: unknown[]) =>
    read(model(call('a')), { ...tool('a'), output: content }).conversation.last?.toolCalls[0]?.result;

  test('the text names the files, and is not changed if it does so already', () => {
    const file = { type: 'file', name: 'image-1.png', mimeType: 'image/png', bytes: 7, base64: PNG };
    const expected = { outcome: 'succeeded', content: 'A cat.\n[image-1.png, image/png, 7 B]', files: [file] };
    expect(given(text('A cat.'), image)).toEqual(expected);
    expect(given(text('A cat.\n[image-1.png, image/png, 7 B]'), image)).toEqual(expected);
    const several = given(text('[image-1.png, image/png, 7 B]\nand\n[image-2.png, image/png, 7 B]'), image, image);
    expect(several?.content.split('\n')).toHaveLength(3);
    expect(given(audio)).toMatchObject({ content: '[audio-1.wav, audio/wav, 7 B]', files: [{ name: 'audio-1.wav' }] });
    expect(given({ ...image, mime_type: 'image/bmp' })?.files).toMatchObject([{ mimeType: 'image/bmp' }]);
  });

  test('empty content is an empty result', () => {
    expect(given()).toEqual({ outcome: 'succeeded', content: '' });
  });

  test('the model is told of a cancelled call, whose item is empty', () => {
    const cancelled = { ...tool('a'), output: [], is_error: true, status: 'cancelled' };
    expect(shape(model(call('a')), cancelled).last).toEqual([['a', expect.stringMatching(/not executed/)]]);
  });

  test.each([
    [{}, 'succeeded'],
    [{ is_error: false }, 'succeeded'],
    [{ is_error: true }, 'failed'],
    [{ status: 'completed' }, 'succeeded'],
    [{ status: 'failed' }, 'failed'],
    [{ status: 'cancelled', is_error: true }, 'cancelled'],
    [{ status: null, is_error: null }, 'succeeded'],
  ])('%j: %s', (end, outcome) => {
    const ofItem = read(model(call('a')), { ...tool('a'), is_error: null, ...end });
    const ofMessage = read(model(call('a')), toolMessage({ ...result('a'), ...end }));
    for (const { conversation } of [ofItem, ofMessage]) {
      expect(conversation.last?.toolCalls[0]?.result?.outcome).toBe(outcome);
    }
  });
});

test('both shapes of llm-sdk, and both at once, give the same conversation', () => {
  const old = [user(text('hi')), model(call('a')), toolMessage({ ...result('a'), is_error: true })];
  const newCall = { call: { type: 'function', name: 'look', args: { q: 'a' } } };
  const newResult = { result: { type: 'function', name: 'look', content: [text('result of a')] }, status: 'failed' };
  const newer = [
    user(text('hi')),
    model({ type: 'tool-call', tool_call_id: 'a', ...newCall }),
    toolMessage({ type: 'tool-result', tool_call_id: 'a', ...newResult }),
  ];
  const both = [
    { ...user(text('hi')), extra: 1 },
    { ...model({ ...call('a'), ...newCall, signature: 'x' }), usage: { input_tokens: 1 }, cost: 2 },
    toolMessage({ ...result('a'), ...newResult, is_error: true, tool_name: null }),
  ];
  expect(read(...newer)).toEqual(read(...old));
  expect(read(...both)).toEqual(read(...old));
  expect(read({ type: 'message', role: 'user', content: 'hi' })).toEqual(read(user(text('hi'))));
});

test('arguments that are not a JSON object are those that the model wrote', () => {
  const [calls] = [read(model({ ...call('a', {}), raw_args: '{"q":' })).conversation.last?.toolCalls];
  expect(calls).toEqual([{ id: 'a', name: 'look', arguments: '{"q":' }]);
  expect(read(model(call('a'))).conversation.last?.toolCalls).toEqual([
    { id: 'a', name: 'look', arguments: '{"q":"a"}' },
  ]);
});

test('signed parts are sent back to the provider that wrote the message', () => {
  const origin = { provider: 'acme', model: 'm-1' };
  const foreign = encodeSignature({ provider: 'other', call: { x: 1 } });
  const message = model(
    { type: 'reasoning', text: 'hm', signature: encodeSignature({ ...origin, message: { blocks: [1] } }) },
    { ...call('a'), signature: encodeSignature({ ...origin, call: { sig: 'x' } }) },
    { ...call('b'), signature: foreign },
    { ...call('c'), signature: 'of another library' },
    { ...call('d'), signature: Buffer.from('['.repeat(100_000)).toString('base64url') },
  );
  const fields = { ...origin, providerFields: { blocks: [1] } };
  const calls = [{ id: 'a', providerFields: { sig: 'x' } }, { id: 'b' }, { id: 'c' }, { id: 'd' }];
  const { last } = read(message).conversation;
  expect(last).toMatchObject({ ...fields, toolCalls: calls });
  expect(last?.toolCalls.filter(({ providerFields }) => providerFields)).toHaveLength(1);
  expect(read(message, hi).conversation.items[0]).toMatchObject({ message: { ...fields, toolCalls: calls } });
});

test('audio of a user is a file for the model, and that of a model its transcript', () => {
  const { items, last } = read(user(audio), model({ ...audio, transcript: 'Hello.' })).conversation;
  const file = { type: 'file', name: 'audio-1', mimeType: 'audio/wav', bytes: 7, base64: PNG, asAudio: true };
  expect(items).toEqual([{ role: 'user', content: [file] }]);
  expect(last?.content).toBe('Hello.');
});

test.each<[Capability, unknown[], string]>([
  ['text_input', [user(image, text('hi'))], 'input[0].content[1]'],
  ['text_input', [user(image, source(image))], 'input[0].content[1]'],
  ['image_input', [user(text('hi'), image)], 'input[0].content[1]'],
  ['image_input', [user(source(text('salt'), image))], 'input[0].content[0].content[1]'],
  ['image_input', [hi, model(call('a')), { ...tool('a'), output: [image] }], 'input[2].output[0]'],
  ['audio_input', [user(text('hi'), audio)], 'input[0].content[1]'],
])('a model without %s', (capability, items, param) => {
  expect(() => readWithout([capability], ...items)).toThrow(
    expect.objectContaining({ code: 'unsupported_part', param }),
  );
  expect(() => readWithout(['image_output', 'function_calling'], ...items)).not.toThrow();
});

test('the images of the last message fit into the history', () => {
  const images = (count: number) => Array.from({ length: count }, () => image);
  const draws = { ownImages: true };
  expect(readWith(draws, hi, model(...images(300))).conversation.last?.images).toHaveLength(300);
  expect(() => readWith(draws, hi, model(...images(990)), hi)).not.toThrow();
  expect(() => readWith(draws, hi, model(...images(990)))).toThrow(
    expect.objectContaining({ code: 'invalid_items', param: 'input[1]' }),
  );
});

test('a source is a line that names it, and its content', () => {
  const named = { type: 'text', text: 'Source: Seas (https://a.test)' };
  expect(read(user(text('why?'), source(text('salt'), image), audio)).conversation.items).toMatchObject([
    { content: [text('why?'), named, text('salt'), { name: 'image-1' }, { name: 'audio-1' }] },
  ]);
  const { last } = read(hi, model(call('a'), call('b')), { ...tool('a'), output: [source(text('salt'))] }).conversation;
  expect(last?.toolCalls[0]?.result?.content).toBe(`${named.text}\nsalt`);
});

test('images of a user are files of the conversation', () => {
  expect(read(user(text('look'), { ...image, mime_type: 'image/PNG' })).conversation.items).toEqual([
    {
      role: 'user',
      content: [
        { type: 'text', text: 'look' },
        { type: 'file', name: 'image-1', mimeType: 'image/png', bytes: 7, base64: PNG },
      ],
    },
  ]);
});

test.each<[string, unknown[], unknown[]]>([
  ['a result before any message', [tool('a')], [422, 'invalid_items', 'input[0].tool_call_id']],
  ['a result after a user message', [model(call('a')), hi, tool('a')], [422, 'invalid_items', 'input[2].tool_call_id']],
  [
    'a result of an unknown call',
    [hi, model(call('a')), toolMessage(result('a'), result('b'))],
    [422, 'invalid_items', 'input[2].content[1].tool_call_id'],
  ],
  [
    'a result of a message before the last one',
    [model(call('a')), model(text('Done.')), tool('a')],
    [422, 'invalid_items', 'input[2].tool_call_id'],
  ],
  ['two calls of one id', [model(call('a'), call('a'))], [422, 'invalid_items', 'input[0].content[1].tool_call_id']],
  ['an empty message of a model', [hi, model()], [422, 'invalid_items', 'input[1].content']],
  ['a blank message of a model', [hi, assistant(text(' '))], [422, 'invalid_items', 'input[1].content']],
  ['an empty message of a user', [user()], [422, 'invalid_items', 'input[0].content']],
  ['an empty text', [{ type: 'message', role: 'user', content: '' }], [422, 'invalid_items', 'input[0].content']],
  ['an empty tool message', [model(call('a')), toolMessage()], [422, 'invalid_items', 'input[1].content']],
  ['a call of a user', [user(call('a'))], [422, 'invalid_items', 'input[0].content[0]']],
  ['reasoning of a user', [user({ type: 'reasoning', text: 'x' })], [422, 'invalid_items', 'input[0].content[0]']],
  ['a result in a message of a model', [model(call('a'), result('a'))], [422, 'invalid_items', 'input[0].content[1]']],
  [
    'a source in a message of a model',
    [model({ type: 'source', source: 's', title: 't', content: [] })],
    [422, 'invalid_items', 'input[0].content[0]'],
  ],
  ['text in a tool message', [model(call('a')), toolMessage(text('x'))], [422, 'invalid_items', 'input[1].content[0]']],
  ['too many calls', [model(...numbered(350, 'note'))], [422, 'invalid_items', 'input[0]']],
  [
    'too many calls with long names',
    [hi, model(...numbered(200, 'n'.repeat(250)))],
    [422, 'invalid_items', 'input[1]'],
  ],
  ['audio as flac', [user(text('hi'), { ...audio, format: 'flac' })], [422, 'unsupported_part', 'input[0].content[1]']],
  [
    'a source with a bitmap',
    [user(source(text('x'), { ...image, mime_type: 'image/bmp' }))],
    [422, 'unsupported_part', 'input[0].content[0].content[1]'],
  ],
  ['an image of a model', [model(image)], [422, 'unsupported_part', 'input[0].content[0]']],
  ['a bitmap', [user({ ...image, mime_type: 'image/bmp' })], [422, 'unsupported_part', 'input[0].content[0]']],
  ['audio of a model without a transcript', [model(audio)], [422, 'unsupported_part', 'input[0].content[0]']],
  ['no base64', [user({ ...image, data: '?' })], [400, 'invalid_request', 'input[0].content[0].data']],
  ['no image', [user({ ...image, mime_type: 'text/html' })], [400, 'invalid_request', 'input[0].content[0].mime_type']],
  ['an unknown item', [hi, { type: 'memo' }], [400, 'invalid_request', 'input[1].type']],
  ['an unknown part', [user(text('x'), { type: 'video' })], [400, 'invalid_request', 'input[0].content[1].type']],
  [
    'a contradiction',
    [tool('a', 'x', { is_error: true, status: 'completed' })],
    [400, 'invalid_request', 'input[0].is_error'],
  ],
  [
    'another one',
    [tool('a', 'x', { is_error: false, status: 'failed' })],
    [400, 'invalid_request', 'input[0].is_error'],
  ],
  [
    'a contradiction in a message',
    [toolMessage({ ...result('a'), is_error: false, status: 'cancelled' })],
    [400, 'invalid_request', 'input[0].content[0].is_error'],
  ],
  [
    'two sets of arguments',
    [model({ ...call('a'), call: { type: 'function', name: 'look', args: {} } })],
    [400, 'invalid_request', 'input[0].content[0].args'],
  ],
  [
    'a call without a name',
    [model({ type: 'tool-call', tool_call_id: 'a', args: {} })],
    [400, 'invalid_request', 'input[0].content[0].tool_name'],
  ],
  [
    'a result without content',
    [toolMessage({ type: 'tool-result', tool_call_id: 'a' })],
    [400, 'invalid_request', 'input[0].content[0].content'],
  ],
  ['a long id', [model(call('x'.repeat(65)))], [400, 'invalid_request', 'input[0].content[0].tool_call_id']],
  ['an id with NUL', [model(call('a\0'))], [400, 'invalid_request', 'input[0].content[0].tool_call_id']],
  ['too many items', Array.from({ length: 10_001 }, () => hi), [400, 'invalid_request', 'input']],
])('%s is refused with its place', (_, items, expected) => {
  expect(refused(...items)).toEqual(expected);
});

test('the calls without a result are limited, since the history of the run names them', () => {
  const calls = Array.from({ length: 1_000 }, (_, i) => call(`c${i}`));
  expect(read(model(...calls), hi).repaired).toHaveLength(1_000);
  expect(refused(model(...calls), model(call('one-more')), hi)).toEqual([422, 'invalid_items', 'input']);
});

test('a long conversation is read within its items', () => {
  const round = (count: number) => {
    const calls = Array.from({ length: count }, (_, i) => `c${i}`);
    return [hi, model(...calls.map((id) => call(id))), ...calls.map((id) => tool(id))];
  };
  const { items, last } = read(...round(500), ...round(150)).conversation;
  expect([items.length, last?.toolCalls.length]).toEqual([1 + 1 + 500 + 1, 150]);
});
