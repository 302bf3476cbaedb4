import { expect, test } from 'vitest';
import { GREETING, type Aimock } from './aimock.ts';
import { folded, type Frame } from './api-client.ts';
import { onTestServer, type TestServer } from './test-server.ts';

/** The servers, with which `describe` begins before they have started. */
export interface Running {
  server: TestServer;
  aimock: Aimock;
}

interface Route {
  /** The owner of the fixtures of aimock. */
  name: string;
  provider: string;
  model: string;
  /** The form in which thoughts beside a call are sent back: in clear, or as they were signed. Undefined: nothing. */
  returns: RegExp | undefined;
  /** How a stream that aimock breaks off fails. */
  brokenAs: string;
}

/** Turns with models of aimock, which may have a proxy before it, and the tool `look` of the server of the test. */
export function testTurns({ name, provider, model, returns, brokenAs }: Route, running: () => Running): void {
  async function open() {
    const { server, aimock } = running();
    const params = { reasoning_effort: 'low' };
    await server.api.putAgent(name, { ...onTestServer, model: { name: `${provider}/${model}`, params } });
    const sessionId = await server.api.createSession(name);
    const before = aimock.requests.length;
    return {
      turn: (word: string) => server.api.turn(sessionId, `${word} ${name}`),
      requests: () => aimock.requests.slice(before),
    };
  }

  test('characters of every length arrive whole, and in order', async () => {
    const chat = await open();
    const reader = chat.turn('greet');
    expect(await reader.end()).toMatchObject({ status: 'done', output: { content: GREETING, finish_reason: 'stop' } });
    expect(messages(await reader.done)).toMatchObject([{ content: GREETING }]);
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
    ['broken', brokenAs],
  ])('an attempt that is %s is repeated', async (word, failure) => {
    const chat = await open();
    const reader = chat.turn(word);
    expect(await reader.end()).toMatchObject({ status: 'done', output: { content: 'Noted.' } });
    const attempts = [{ provider, model, failure }];
    expect(messages(await reader.done)).toMatchObject([{ content: 'Noted.', attempts }]);
    expect(chat.requests()).toHaveLength(2);
  });

  test('a refusal ends the turn with the provider, the model and the status', async () => {
    const chat = await open();
    expect(await chat.turn('refused').end()).toMatchObject({
      status: 'error',
      message: expect.stringMatching(new RegExp(`^${provider}/${model} answered 400: .*that is no role`)),
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
}

function messages(frames: Frame[]): object[] {
  return folded(frames).filter((event) => 'type' in event && event.type === 'model.message');
}
