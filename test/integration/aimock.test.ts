import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe } from 'vitest';
import { startAimock, type Aimock } from '../support/aimock.ts';
import { testTurns } from '../support/aimock-turns.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** Turns with a model server of others, which has the wire formats of all kinds of providers. */

const IN_CLEAR = /"reasoning_content":"It may be blue\."/;

const KINDS = [
  { kind: 'openai-chat', model: 'gpt-5', version: 'v1', returns: IN_CLEAR },
  { kind: 'openai-compatible', model: 'deepseek-r1', version: 'v1', returns: IN_CLEAR },
  { kind: 'openai-responses', model: 'gpt-5', version: 'v1', returns: /"encrypted_content":"\w+=*"/ },
  {
    kind: 'anthropic',
    model: 'claude-sonnet-4-5',
    version: 'v1',
    returns: /"thinking":"It may be blue\.","signature":"[^"]+"/,
  },
  // Its thoughts go back as signatures only, and aimock has none.
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
  testTurns({ name: kind, provider: kind, model, returns, brokenAs: 'broken_stream' }, () => ({ server, aimock }));
});
