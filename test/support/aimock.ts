import type { IncomingMessage, ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { LLMock, type Fixture, type FixtureResponse } from '@copilotkit/aimock';
import { z } from 'zod';
import { listen } from '../../src/demo/local-server.ts';

/** Its deltas have ten UTF-16 units each, so one of them ends between a hand and the colour of its skin. */
export const GREETING = 'Grüße aus 世界! 👋🏽👋🏽👋🏽👋🏽 naïve';

/** The context of the models, in characters of all messages. */
const CONTEXT = 16_000;

/** The error of each wire format for a request that is too long, and for one that no retry mends. */
const OPENAI = 'Input tokens exceed the configured limit of 4000 tokens. Please reduce the length of the messages.';
const TOO_LONG = new Map([
  ['claude', { message: 'prompt is too long: 4100 tokens > 4000 maximum', type: 'invalid_request_error' }],
  ['gemini', { message: 'The input token count (4100) exceeds the maximum number of tokens allowed (4000).' }],
]);

/**
 * The behaviours that a test chooses by the word that begins a user's message. Those that fail first do so once for each
 * `name` after it.
 */
function fixturesFor(name: string): Fixture[] {
  const look = (at: string) => ({ id: `call_${at}_${name}`, name: 'look', arguments: JSON.stringify({ at }) });
  const on = (word: string, response: Fixture['response'], more: Partial<Fixture> = {}): Fixture => ({
    ...more,
    match: { userMessage: `${word} ${name}`, ...more.match },
    response,
  });
  const once = { match: { sequenceIndex: 0 } };
  const error = (status: number, message: string, more: object = {}): FixtureResponse => ({
    status,
    error: { message, type: 'invalid_request_error', ...more },
  });
  return [
    on('greet', { content: GREETING }),
    on('look-once', { content: 'I saw it.' }, { match: { hasToolResult: true } }),
    on('look-once', { content: 'Let me see.', reasoning: 'It may be blue.', toolCalls: [look('sea')] }),
    on('look-twice', { content: 'I saw both.' }, { match: { hasToolResult: true } }),
    on('look-twice', { reasoning: 'There are two.', toolCalls: [look('sea'), look('sky')] }),
    on('limited', { ...error(429, 'slow down', { type: 'rate_limit_error' }), retryAfter: 1 }, once),
    // With pauses, so that what was sent arrives before the end.
    on('broken', { content: 'I was about to say something else' }, { ...once, truncateAfterChunks: 4, latency: 20 }),
    on('failing', error(500, 'the engine broke', { type: 'server_error' }), once),
    on('refused', error(400, 'that is no role', { param: 'role' })),
  ];
}

const TOO_LONG_FIXTURE: Fixture = {
  match: { predicate: ({ messages }) => JSON.stringify(messages).length > CONTEXT },
  response: ({ model }) => ({
    status: 400,
    error: TOO_LONG.get(model.split('-')[0] ?? '') ?? {
      message: OPENAI,
      type: 'invalid_request_error',
      code: 'context_length_exceeded',
    },
  }),
};

/** A request as it was sent. */
export interface SentRequest {
  path: string;
  model: string;
  body: string;
}

export interface Aimock {
  /** Without the version that a base URL has. */
  url: string;
  requests: SentRequest[];
  stop: () => Promise<void>;
}

/**
 * The unmodified model server aimock, which speaks the wire formats of OpenAI (two), Anthropic and Gemini, and rejects what
 * breaks their rules on thoughts. What it gets is recorded on the way: its own journal has only what it understands.
 * @param names what the tests write after the word that chooses a behaviour
 */
export async function startAimock(names: string[]): Promise<Aimock> {
  const mock = new LLMock({ port: 0, chunkSize: 10, strict: true });
  mock.addFixtures([TOO_LONG_FIXTURE, ...names.flatMap(fixturesFor), { match: {}, response: { content: 'Noted.' } }]);
  await mock.start();
  const requests: SentRequest[] = [];
  const pass = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { method = 'GET', url: path = '/', headers } = request;
    const body = method === 'GET' ? undefined : (await buffer(request)).toString();
    if (body !== undefined) requests.push({ path, model: modelOf(path, body), body });
    const kept = Object.entries(headers).filter(([name]) => !HOP_BY_HOP.has(name));
    const answer = await fetch(mock.url + path, {
      method,
      headers: kept.map(([name, value]): [string, string] => [name, String(value)]),
      ...(body !== undefined && { body }),
    });
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    for await (const bytes of answer.body ?? []) await new Promise((sent) => void response.write(bytes, sent));
    response.end();
  };
  const { url, stop } = await listen((request, response) => {
    // A stream that aimock breaks off is broken off here, too.
    pass(request, response).catch(() => response.destroy());
  }, '');
  return {
    url,
    requests,
    stop: async () => {
      await stop();
      await mock.stop();
    },
  };
}

const HOP_BY_HOP: ReadonlySet<string> = new Set(['connection', 'host', 'content-length', 'transfer-encoding']);

/** Gemini's is in the path. */
function modelOf(path: string, body: string): string {
  const inPath = /models\/([^:]+):/.exec(path)?.[1];
  return inPath ?? z.object({ model: z.string() }).parse(JSON.parse(body)).model;
}
