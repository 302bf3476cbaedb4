import { afterAll, beforeAll, expect, test } from 'vitest';
import { say, textOf, type Script } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server.stop());

/** The window of the model, in tokens of four characters: the default of Ollama, and that of a small llama.cpp server. */
const WINDOW = 4_096;

/** How servers say that a request is too long: the status, the message and the other fields of the error. */
const REFUSALS: Record<string, [status: number, message: string, more?: object]> = {
  'llama.cpp': [
    400,
    'request (10838 tokens) exceeds the available context size (4096 tokens), try increasing it',
    { code: 400, type: 'exceed_context_size_error', n_prompt_tokens: 10_838, n_ctx: WINDOW },
  ],
  'OpenAI (gpt-5)': [
    400,
    'Input tokens exceed the configured limit of 4096 tokens. Please reduce the length of the messages.',
    { code: 'context_length_exceeded', type: 'invalid_request_error' },
  ],
  LiteLLM: [400, 'litellm.ContextWindowExceededError: context_window_fallbacks=None', { code: '400', type: null }],
  Ollama: [400, 'the input length exceeds the context length'],
  // What is said by nobody in words: only the status and the length tell.
  'a server without words for it': [400, 'Bad Request'],
  'a proxy with a limit of bytes': [413, 'Request Entity Too Large'],
};

test.each(Object.entries(REFUSALS))('no session dies of its length: %s', async (_server, [status, message, more]) => {
  let rejected = 0;
  const script: Script = (call) => {
    const characters = call.request.messages.reduce((sum, one) => sum + textOf(one).length, 0);
    if (characters / 4 <= WINDOW) return say('Noted.')(call);
    rejected += 1;
    call.fail(status, message, {}, more);
  };
  const chat = await server.chat({ scripts: Array.from({ length: 40 }, () => script) });
  for (let turn = 1; turn <= 6; turn++) {
    const text = `${turn} ${'word '.repeat(1_600)}`;
    expect(await chat.turn(text).end(), `turn ${turn}`).toMatchObject({
      status: 'done',
      output: { content: 'Noted.' },
    });
  }
  expect(rejected).toBeGreaterThan(0);
});
