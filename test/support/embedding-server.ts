import type { ServerResponse } from 'node:http';
import { json } from 'node:stream/consumers';
import { z } from 'zod';
import { listen } from '../../src/demo/local-server.ts';

/** The limits of OpenAI on our requests: texts are not empty, and a list has at most 2,048 of them. */
const request = z.strictObject({
  model: z.string(),
  input: z.array(z.string().min(1)).min(1).max(2_048),
  encoding_format: z.literal('float'),
});
type EmbeddingRequest = z.infer<typeof request>;

/** A server of OpenAI's embeddings whose vectors are those of the test. */
export interface EmbeddingServer {
  /** With the version. */
  url: string;
  requests: EmbeddingRequest[];
  /** Replaces the answers from now on. */
  answer: (request: EmbeddingRequest, response: ServerResponse) => void;
  stop: () => Promise<void>;
}

export async function startEmbeddingServer(vectorOf: (text: string) => number[]): Promise<EmbeddingServer> {
  const requests: EmbeddingRequest[] = [];
  const { url, stop } = await listen((incoming, response) => {
    if (incoming.url !== '/v1/embeddings') return void response.writeHead(404).end();
    json(incoming)
      .then((body) => {
        const parsed = request.parse(body);
        requests.push(parsed);
        server.answer(parsed, response);
      })
      .catch((error: unknown) => sendError(response, 400, String(error)));
  }, '/v1');
  const server: EmbeddingServer = {
    url,
    requests,
    answer: ({ input }, response) => sendEmbeddings(response, input.map(vectorOf)),
    stop,
  };
  return server;
}

/** In an order that is not that of the texts: the index gives the text of each. */
export function sendEmbeddings(response: ServerResponse, vectors: unknown[]): void {
  const data = vectors.map((embedding, index) => ({ object: 'embedding', index, embedding })).toReversed();
  send(response, 200, { object: 'list', data, model: 'any', usage: { prompt_tokens: 1, total_tokens: 1 } });
}

export function sendError(response: ServerResponse, status: number, message: string): void {
  send(response, status, { error: { message, type: 'server_error' } });
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
