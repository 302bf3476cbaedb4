import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LOOK, messageOf, openModel, read, requestOf, USER } from '../../../test/support/model-answers.ts';
import { failing, PROTOCOLS, sending, startEndpoint, type Endpoint } from '../../../test/support/model-protocols.ts';
import { emptyText } from '../../core/message.ts';
import type { TranscriptItem } from '../../core/transcript.ts';
import type { ModelProvider } from '../provider.ts';

let endpoint: Endpoint;
let provider: ModelProvider;
beforeEach(async () => {
  endpoint = await startEndpoint();
  ({ provider } = openModel(endpoint, 'mistral'));
});
afterEach(() => endpoint.stop());

const ok = sending(...(PROTOCOLS.find(({ kind }) => kind === 'mistral')?.events({ text: 'ok' }) ?? []));

/** A message of another model, with calls of these ids and their results. */
function called(ids: string[], files: (TranscriptItem & { role: 'tool' })['files'] = []): TranscriptItem[] {
  const info = { type: 'system' as const, name: 'look' };
  const toolCalls = ids.map((id) => ({ id, name: 'look', arguments: '{}', info }));
  const answer = {
    ...emptyText(),
    content: 'I look',
    toolCalls,
    usage: undefined,
    finishReason: undefined,
    blocks: [],
  };
  const results = ids.map((toolCallId): TranscriptItem => ({
    role: 'tool',
    toolCallId,
    name: 'look',
    content: 'blue',
    files,
  }));
  return [USER, messageOf(answer), ...results];
}

async function messages(transcript: TranscriptItem[]): Promise<Record<string, unknown>[]> {
  endpoint.script(ok);
  await read(provider, requestOf({ transcript, tools: [LOOK] }));
  return endpoint.requests.at(-1)?.body.messages;
}

describe('the conversation that Mistral accepts', () => {
  // "Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9": https://github.com/karthink/gptel/issues/1203
  test('ids of calls have nine letters and digits, the same for a call and its result', async () => {
    const sent = await messages(called(['call_PTLP8xhu3uwZk4l3nlnrrJha', 'D681PevKs']));
    const [, , { tool_calls: calls } = {}, first, second] = sent;
    expect(calls).toMatchObject([{ id: expect.stringMatching(/^[a-zA-Z0-9]{9}$/) }, { id: 'D681PevKs' }]);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- checked above
    const [one] = calls as { id: string }[];
    expect([first, second]).toMatchObject([{ tool_call_id: one?.id }, { tool_call_id: 'D681PevKs' }]);
  });

  // "Unexpected role 'user' after role 'tool'": https://github.com/BerriAI/litellm/issues/17761
  test('no message of a user follows a result directly', async () => {
    const sent = await messages([...called(['a', 'b']), USER, USER]);
    const roles = ['system', 'user', 'assistant', 'tool', 'tool', 'assistant', 'user', 'user'];
    expect(sent.map(({ role }) => role)).toEqual(roles);
  });

  test('images of results follow in a message of the user, in which the model sees them', async () => {
    const image = { type: 'file' as const, name: 'a.png', mimeType: 'image/png', bytes: 5, blob: 'x' };
    const sent = await messages(called(['a', 'b'], [image]));
    expect(sent.slice(3)).toMatchObject([
      { role: 'tool', content: 'blue' },
      { role: 'tool', content: 'blue' },
      { role: 'assistant' },
      { role: 'user', content: [{ type: 'text' }, { type: 'image_url' }, { type: 'image_url' }] },
    ]);
  });

  test('images that another model has drawn are left out', async () => {
    const image = { type: 'file' as const, name: 'a.png', mimeType: 'image/png', bytes: 5, blob: 'x' };
    const drawn = messageOf({ ...emptyText(), usage: undefined, finishReason: 'stop', blocks: [] });
    if (drawn.role === 'assistant') drawn.message.images = [{ file: image }];
    expect((await messages([USER, drawn, USER])).map(({ role }) => role)).toEqual(['system', 'user', 'user']);
  });
});

describe('errors', () => {
  test.each<[string, number, object, object]>([
    [
      // https://github.com/mistralai/mistral-vibe/issues/617
      'a wrong model',
      400,
      { object: 'error', message: 'Invalid model: mistral-huge', type: 'invalid_model', param: null, code: '1500' },
      { failure: 'refused_model', message: 'Invalid model: mistral-huge', mayBeTooLong: false },
    ],
    [
      // https://docs.mistral.ai/resources/known-limitations
      'a conversation that is too long',
      400,
      {
        object: 'error',
        message:
          'Prompt contains 40537 tokens and 0 draft tokens, too large for model with 32768 maximum context length',
        type: 'invalid_request_error',
        param: null,
        code: '3051',
      },
      { failure: 'bad_request', isTooLong: true },
    ],
    // The forms that the adapter does not support.
    ['a wrong key', 401, { detail: 'Unauthorized' }, { failure: 'auth', message: '{"detail":"Unauthorized"}' }],
    [
      'a gateway’s message',
      401,
      { message: 'no Route matched', request_id: 'r' },
      { failure: 'auth', message: 'no Route matched' },
    ],
    [
      // https://github.com/nomtek/mistralai_client_dart/issues/44
      'a refused parameter',
      422,
      {
        object: 'error',
        message: {
          detail: [{ type: 'extra_forbidden', loc: ['body', 'top_k'], msg: 'Extra inputs are not permitted' }],
        },
        type: 'invalid_request_error',
        param: null,
        code: null,
      },
      { failure: 'bad_request', message: expect.stringContaining('top_k') },
    ],
  ])('%s', async (_, status, body, expected) => {
    endpoint.script(failing(body, status));
    await expect(read(provider)).rejects.toMatchObject({ status, ...expected });
  });
});

test('an answer that ends with an error is none', async () => {
  const choices = [{ index: 0, delta: { content: 'I' }, finish_reason: 'error' }];
  endpoint.script(sending(`data: ${JSON.stringify({ id: 'c', choices })}\n\n`));
  await expect(read(provider)).rejects.toMatchObject({ failure: 'broken_stream', isRetryable: true });
});
