import { expect, onTestFinished, test } from 'vitest';
import { listen } from '../demo/local-server.ts';
import { openModel, read } from '../../test/support/model-answers.ts';
import { ModelError } from './model-error.ts';
import type { ProviderConfig } from './provider-file.ts';

/** The header that has the key of a provider, by its kind, in another spelling than its client's. */
const KEY_HEADERS = {
  'openai-chat': 'AUTHORIZATION',
  'openai-responses': 'AUTHORIZATION',
  anthropic: 'X-API-KEY',
  google: 'X-GOOG-API-KEY',
  mistral: 'AUTHORIZATION',
} satisfies Record<ProviderConfig['kind'], string>;

const KINDS = Object.entries(KEY_HEADERS) as [ProviderConfig['kind'], string][];

interface Received {
  method: string;
  /** Each as it was sent, with its name in lower case. */
  headers: [name: string, value: string][];
}

/** A server that rejects all requests, and keeps what it has received. */
async function start(): Promise<{ url: string; received: Received[] }> {
  const received: Received[] = [];
  const { url, stop } = await listen(({ method = '', rawHeaders }, response) => {
    const headers = rawHeaders.flatMap((name, i): [string, string][] =>
      i % 2 === 0 ? [[name.toLowerCase(), rawHeaders[i + 1] ?? '']] : [],
    );
    received.push({ method, headers });
    response.writeHead(400).end('{}');
  }, '');
  onTestFinished(stop);
  return { url, received };
}

test.each(KINDS)('%s: a header of the provider file replaces the key, in the spelling %s', async (kind, name) => {
  const { url, received } = await start();
  const { provider } = openModel({ url }, kind, { headers: { [name]: 'of the operator' } });
  await expect(read(provider)).rejects.toThrow(ModelError);
  await provider.find('m-1');
  expect(new Set(received.map(({ method }) => method))).toEqual(new Set(['POST', 'GET']));
  for (const { headers } of received) {
    expect(headers.filter(([one]) => one === name.toLowerCase())).toEqual([[name.toLowerCase(), 'of the operator']]);
    expect(JSON.stringify(headers)).not.toContain('the-key');
  }
});
