import { pino } from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { say, textOf, type Script } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
const logged: string[] = [];
beforeAll(async () => {
  server = await startTestServer({ log: pino({ level: 'warn' }, { write: (line) => void logged.push(line) }) });
});
afterAll(() => server.stop());

/** The window of the model, in tokens of four characters: the default of Ollama, and that of a small llama.cpp server. */
const WINDOW = 4_096;

/** How servers report that a request is too long: the status, the message and the other fields of the error. */
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
  // Without any words for it: only the status and the length show it.
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

const ABOVE = { config: { context_management: { compaction: { compaction_threshold_tokens: 50_000 } } } };

test.each([
  ['an agent', {}],
  ['an agent with a threshold above the window', ABOVE],
])('what a server drops without a word is said in the log once, and compacted for: %s', async (_, spec) => {
  const inputs: number[] = [];
  // As Ollama: the newest messages that fit, after the system prompt.
  const script: Script = (call) => {
    const [system = 0, ...rest] = call.request.messages.map((one) => textOf(one).length / 4);
    let tokens = system;
    for (const size of rest.toReversed()) {
      if (tokens > system && tokens + size > WINDOW) break;
      tokens += size;
    }
    inputs.push(rest.reduce((sum, size) => sum + size, system));
    const prompt = Math.ceil(tokens);
    call.text('Noted.').finish('stop', { prompt_tokens: prompt, completion_tokens: 5, total_tokens: prompt + 5 });
  };
  const chat = await server.chat({ spec, scripts: Array.from({ length: 40 }, () => script) });
  for (let turn = 1; turn <= 6; turn++) {
    expect(await chat.turn(`${turn} ${'word '.repeat(1_600)}`).end()).toMatchObject({ status: 'done' });
  }
  const warnings = logged
    .map((line) => JSON.parse(line))
    .filter(({ msg, model }) => model === chat.agent && /drops the beginning/.test(msg));
  expect(warnings).toEqual([expect.objectContaining({ provider: 'openai' })]);
  expect(inputs.some((tokens) => tokens > WINDOW)).toBe(true);
  // Once it is noticed, nothing is sent that would be dropped: neither the requests nor those for summaries.
  expect(inputs.slice(4).filter((tokens) => tokens > WINDOW)).toEqual([]);
  const metrics = await (await fetch(`${server.api.url}/metrics`)).text();
  expect(metrics).toMatch(/^everturn_model_inputs_truncated_total\{provider="openai"\} [1-9]/m);
});
