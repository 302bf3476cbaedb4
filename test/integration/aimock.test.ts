import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { folded, type Frame } from '../support/api-client.ts';
import { GREETING, startAimock, type Aimock } from '../support/aimock.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

/** Turns with a model server of others, which knows the wire formats of all kinds of providers. */

interface Kind {
  kind: string;
  model: string;
  version: string;
  /** What has to go back of the thoughts beside a call: in clear, or as they were signed. Gemini's calls have signatures only. */
  returns: RegExp | undefined;
}

const KINDS: Kind[] = [
  { kind: 'openai-chat', model: 'gpt-5', version: 'v1', returns: /"reasoning_content":"It may be blue\."/ },
  { kind: 'openai-compatible', model: 'deepseek-r1', version: 'v1', returns: /"reasoning_content":"It may be blue\."/ },
  { kind: 'openai-responses', model: 'gpt-5', version: 'v1', returns: /"encrypted_content":"\w+=*"/ },
  {
    kind: 'anthropic',
    model: 'claude-sonnet-4-5',
    version: 'v1',
    returns: /"thinking":"It may be blue\.","signature":"[^"]+"/,
  },
  { kind: 'google', model: 'gemini-2.5-pro', version: 'v1beta', returns: undefined },
];

let folder: string;
let aimock: Aimock;
let server: TestServer;
beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'everturn-aimock-'));
  aimock = await startAimock(KINDS.map(({ kind }) => kind));
  const providers = KINDS.map(({ kind, version }) => [kind, { kind, base_url: `${aimock.url}/${version}` }]);
  const file = path.join(folder, 'providers.json');
  await writeFile(file, JSON.stringify({ default: 'google', providers: Object.fromEntries(providers) }));
  server = await startTestServer({
    env: { EVERTURN_MODEL_PROVIDERS: file, EVERTURN_MODEL_RETRY_SECONDS: '30' },
    mcp: { tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: ({ at }) => `saw ${String(at)}` }] },
  });
});
afterAll(async () => {
  await server.stop();
  await aimock.stop();
  await rm(folder, { recursive: true });
});

describe.each(KINDS)('$kind', ({ kind, model, returns }) => {
  async function open() {
    const params = { reasoning_effort: 'low' };
    await server.api.putAgent(kind, { ...onTestServer, model: { name: `${kind}/${model}`, params } });
    const sessionId = await server.api.createSession(kind);
    const before = aimock.requests.length;
    return {
      turn: (word: string) => server.api.turn(sessionId, `${word} ${kind}`),
      requests: () => aimock.requests.slice(before),
    };
  }

  test('characters of every length arrive whole, and in order', async () => {
    const chat = await open();
    const reader = chat.turn('greet');
    expect(await reader.end()).toMatchObject({ status: 'done', output: { content: GREETING, finish_reason: 'stop' } });
    expect(messages(await reader.done)[0]).toMatchObject({ content: GREETING });
  });

  test('a call beside a text and thoughts is carried out, and the thoughts go back', async () => {
    const chat = await open();
    const reader = chat.turn('look-once');
    expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'I saw it.' } });
    expect(messages(await reader.done)[0]).toMatchObject({
      content: 'Let me see.',
      reasoning_content: 'It may be blue.',
      tool_calls: [{ function: { name: 'look', arguments: '{"at":"sea"}' } }],
    });
    const [, second] = chat.requests();
    expect(second?.body).toContain('saw sea');
    if (returns) expect(second?.body).toMatch(returns);
  });

  test('two calls in one message are carried out', async () => {
    const chat = await open();
    expect(await chat.turn('look-twice').end()).toMatchObject({ status: 'done', output: { content: 'I saw both.' } });
    const [, second, ...more] = chat.requests();
    expect(second?.body).toMatch(/saw sea.*saw sky/s);
    expect(more).toEqual([]);
  });

  test.each([
    ['limited', 'rate_limited'],
    ['failing', 'overloaded'],
    ['broken', 'broken_stream'],
  ])('an attempt that is %s is repeated', async (word, failure) => {
    const chat = await open();
    const reader = chat.turn(word);
    expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Noted.' } });
    expect(messages(await reader.done)[0]).toMatchObject({
      content: 'Noted.',
      attempts: [{ provider: kind, failure }],
    });
    expect(chat.requests()).toHaveLength(2);
  });

  test('a refusal ends the turn with the provider, the model and the status', async () => {
    const chat = await open();
    expect(await chat.turn('refused').end()).toMatchObject({
      status: 'error',
      message: expect.stringMatching(new RegExp(`${kind}/${model} answered 400: .*that is no role`)),
    });
    expect(chat.requests()).toHaveLength(1);
  });

  test('no session dies of its length', async () => {
    const chat = await open();
    for (let turn = 1; turn <= 4; turn++) {
      const end = await chat.turn(`${turn} ${'word '.repeat(1_200)}`).end();
      expect(end, `turn ${turn}`).toMatchObject({ status: 'done', output: { content: 'Noted.' } });
    }
    // Four turns, one of which is rejected, its summary and the second attempt.
    expect(chat.requests().length).toBeGreaterThan(4);
    expect(await chat.turn('greet').end()).toMatchObject({ status: 'done', output: { content: GREETING } });
  });
});

function messages(frames: Frame[]) {
  return folded(frames).filter((event) => 'type' in event && event.type === 'model.message');
}
