import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { pino } from 'pino';
import { expect, onTestFinished, test, vi } from 'vitest';
import { stdioEndpoint } from '../../test/support/mcp-kinds.ts';
import { TestMcpServer } from '../../test/support/mcp-server.ts';
import { ScriptedModel } from '../../test/support/scripted-model.ts';
import { NO_GRANTS } from '../features/sign-in/grants.ts';
import { McpPool, McpUnavailableError } from '../mcp/pool.ts';
import { McpRegistry } from '../mcp/registry.ts';
import { chatAccess, openProviders } from '../models/open-providers.ts';
import type { ModelChunk } from '../models/provider.ts';
import type { ModelTarget } from '../models/providers.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { Metrics } from '../telemetry/metrics.ts';
import { tryAgent } from './try-agent.ts';

const log = pino({ level: 'silent' });
const inline = (name: string, url: string) => ({ type: 'inline' as const, name, url });
const registered = (name: string) => ({ type: 'truefoundry-mcp-registry' as const, name });
const portOf = (url: string) => `127.0.0.1:${new URL(url).port}`;

interface Trial {
  modelUrl?: string;
  allowPrivateUrls?: boolean;
  acceptsSlashes?: boolean;
  hasPublicUrl?: boolean;
  maxMs?: number;
  signal?: AbortSignal;
  /** Called after the trial has read a piece of the answer of a model. */
  onChunk?: (chunk: ModelChunk) => void;
}

/** A model, an MCP server, and the results of trying agents with them. No user has signed in. */
async function start() {
  const model = await ScriptedModel.start();
  onTestFinished(() => model.stop());
  const mcp = await TestMcpServer.start({ protocol: '2025-11-25', tools: [{ name: 'find' }] });
  onTestFinished(() => mcp.stop());
  const registry = new McpRegistry();
  registry.add('crm', { url: mcp.url });
  const attempt = (
    spec: Partial<AgentSpec>,
    {
      modelUrl = model.url,
      allowPrivateUrls = true,
      acceptsSlashes = true,
      signal = new AbortController().signal,
      onChunk = () => undefined,
      ...more
    }: Trial = {},
  ) => {
    const access = chatAccess('test', modelUrl);
    const providers = new Map([...access.providers].map(([name, one]) => [name, { ...one, acceptsSlashes }]));
    const models = openProviders(
      { ...access, providers },
      {
        firstChunkSeconds: 60,
        idleSeconds: 60,
        metrics: new Metrics(),
        log,
        shared: undefined,
        onResponse: () => undefined,
      },
    );
    return tryAgent(
      { model: { name: 'm' }, ...spec },
      {
        models: {
          prefixProblem: (name) => models.prefixProblem(name),
          resolve: (name) => watched(models.resolve(name), onChunk),
        },
        embeddings: undefined,
        registry,
        pool: { allowPrivateUrls: () => allowPrivateUrls, grants: NO_GRANTS },
        subjectId: 'ann',
        hasPublicUrl: true,
        signal,
        ...more,
      },
    );
  };
  return { model, mcp, registry, attempt };
}

/** Calls `onChunk` for what a model sends, once the trial has read it. */
function watched(target: ModelTarget, onChunk: (chunk: ModelChunk) => void): ModelTarget {
  async function* stream(...request: Parameters<ModelTarget['provider']['stream']>): AsyncGenerator<ModelChunk> {
    for await (const chunk of target.provider.stream(...request)) {
      yield chunk;
      onChunk(chunk);
    }
  }
  return { ...target, provider: { ...target.provider, stream } };
}

/** An address of this machine at which nothing listens. */
async function refusedUrl(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return `http://127.0.0.1:${port}`;
}

test('each model and each server that works is named with its address and time; a model gets nothing of the agent', async () => {
  const { model, mcp, registry, attempt } = await start();
  const { command, args } = stdioEndpoint('2025-11-25');
  registry.add('program', { command, args });
  const spec = {
    model: { name: 'm', params: { temperature: 0.5 }, fallbacks: ['other', 'm'] },
    instructions: 'The safe is behind the picture.',
    mcp_servers: [registered('crm'), inline('own', `${mcp.url}?key=of-the-agent`), registered('program')],
  };
  const ok = { status: 'ok', reason: null, seconds: expect.any(Number) };
  expect(await attempt(spec)).toEqual([
    { type: 'model', name: 'm', address: portOf(model.url), ...ok },
    { type: 'model', name: 'other', address: portOf(model.url), ...ok },
    { type: 'mcp_server', name: 'crm', address: portOf(mcp.url), ...ok },
    { type: 'mcp_server', name: 'own', address: portOf(mcp.url), ...ok },
    { type: 'mcp_server', name: 'program', address: null, ...ok },
  ]);
  expect(model.requests.map(({ model: name }) => name)).toEqual(['m', 'other']);
  for (const request of model.requests) {
    expect(request).toMatchObject({ max_tokens: 16 });
    expect(request).not.toHaveProperty('temperature');
    expect(request).not.toHaveProperty('tools');
    expect(JSON.stringify(request)).not.toContain('safe');
  }
  // The connections are closed.
  expect(mcp.received.filter((method) => method === 'DELETE')).toHaveLength(2);
});

test('a part that cannot be used has the reason', async () => {
  const { mcp, registry, attempt } = await start();
  const nothing = await refusedUrl();
  registry.add('refused', { url: `${nothing}/mcp` });
  mcp.faults.set('initialize', { status: 200, body: '<html>', contentType: 'text/html' });
  const servers = [registered('refused'), registered('missing'), registered('crm')];
  const [model, ...tried] = await attempt({ mcp_servers: servers }, { modelUrl: `${nothing}/v1` });
  expect(model).toMatchObject({
    status: 'failed',
    address: portOf(nothing),
    reason: expect.stringMatching(
      /^the model cannot be reached \(connect ECONNREFUSED .*\): check that the server is running, and the address, .*base_url/,
    ),
  });
  expect(tried).toMatchObject([
    { name: 'refused', status: 'failed', address: portOf(nothing), reason: 'refuses connections: is it running?' },
    { name: 'missing', status: 'failed', address: null, reason: 'is not registered in EVERTURN_MCP_SERVERS' },
    { name: 'crm', status: 'failed', address: portOf(mcp.url), reason: expect.any(String) },
  ]);
});

test('a model whose provider rejects the key has the status and the message of the provider', async () => {
  const { model, attempt } = await start();
  model.script('m', (call) => call.fail(401, 'Incorrect API key provided'));
  expect(await attempt({})).toMatchObject([{ status: 'failed', reason: 'answered 401: Incorrect API key provided' }]);
  model.script('m', (call) => call.fail(400, 'max_tokens or model output limit was reached. Try again'));
  expect(await attempt({})).toMatchObject([{ status: 'ok', reason: null }]);
});

test('a model with the prefix of no provider has failed, and no provider is asked', async () => {
  const { model, attempt } = await start();
  const tried = await attempt({ model: { name: 'nosuch/m' } }, { acceptsSlashes: false });
  expect(tried).toMatchObject([{ status: 'failed', reason: expect.stringMatching(/^no model provider has the name/) }]);
  expect(model.requests).toEqual([]);
});

test('a server that asks for a sign-in works; one that rejects our credentials does not', async () => {
  const { mcp, registry, attempt } = await start();
  await mcp.restart({ guard: () => Promise.resolve({ status: 401, body: 'no token' }) });
  registry.add('wrong-key', { url: mcp.url, headers: { authorization: 'Bearer old-and-wrong' } });
  const tried = await attempt({ mcp_servers: [registered('crm'), registered('wrong-key')] });
  expect(tried.slice(1)).toMatchObject([
    { name: 'crm', status: 'sign_in_required', reason: 'requires the user to sign in' },
    { name: 'wrong-key', status: 'failed', reason: expect.stringMatching(/^answered with HTTP 401; register/) },
  ]);
  const [, unreachable] = await attempt({ mcp_servers: [registered('crm')] }, { hasPublicUrl: false });
  expect(unreachable).toMatchObject({
    status: 'failed',
    reason: expect.stringMatching(/must set EVERTURN_PUBLIC_URL$/),
  });
});

test('an inline server at a private address is refused, as in a turn', async () => {
  const { mcp, attempt } = await start();
  const [, own] = await attempt({ mcp_servers: [inline('own', mcp.url)] }, { allowPrivateUrls: false });
  expect(own).toMatchObject({ status: 'failed' });
  expect(mcp.received).toEqual([]);
});

test('a model and a server that do not answer in time have failed', async () => {
  const { model, mcp, attempt } = await start();
  model.otherwise = () => undefined;
  mcp.faults.set('initialize', 'stall');
  const tried = await attempt({ mcp_servers: [registered('crm')] }, { maxMs: 300 });
  const late = { status: 'failed', reason: 'has not answered within 0.3 s' };
  expect(tried).toMatchObject([late, late]);
  for (const { seconds } of tried) expect(seconds).toBeLessThan(10);
});

test('a model that is slow has answered with its first word', async () => {
  const { model, attempt } = await start();
  model.otherwise = (call) => void call.text('slowly');
  // The time is up once the word was read, however long that takes.
  const late = new AbortController();
  const timeout = vi.spyOn(AbortSignal, 'timeout').mockReturnValue(late.signal);
  onTestFinished(() => timeout.mockRestore());
  const onChunk = ({ content }: ModelChunk) => {
    if (content !== undefined) late.abort();
  };
  expect(await attempt({}, { onChunk })).toMatchObject([{ status: 'ok' }]);
  expect(late.signal.aborted).toBe(true);
});

test('what its caller gives up is ended', async () => {
  const { model, attempt } = await start();
  const caller = new AbortController();
  const asked = Promise.withResolvers<void>();
  const left = Promise.withResolvers<void>();
  model.otherwise = async (call) => {
    asked.resolve();
    await call.closed;
    left.resolve();
  };
  const trial = attempt({}, { signal: caller.signal });
  await asked.promise;
  caller.abort(new Error('the caller has left'));
  await expect(trial).rejects.toThrow('the caller has left');
  await left.promise;
});

test('at most four programs are started at once', async () => {
  const { registry, attempt } = await start();
  const released = Promise.withResolvers<never>();
  const tools = vi.spyOn(McpPool.prototype, 'tools').mockReturnValue(released.promise);
  onTestFinished(() => tools.mockRestore());
  const names = ['a', 'b', 'c', 'd', 'e', 'f'];
  for (const name of names) registry.add(name, { command: '/bin/false' });
  const trial = attempt({ mcp_servers: names.map(registered) });
  await setImmediate();
  expect(tools).toHaveBeenCalledTimes(4);
  released.reject(new McpUnavailableError('a', { reason: 'ended', cause: undefined }));
  expect((await trial).filter(({ reason }) => reason === 'ended')).toHaveLength(6);
});

test('at most four agents are tried at once', async () => {
  const { model, registry, attempt } = await start();
  const resolved = vi.spyOn(registry, 'resolve');
  const released = Promise.withResolvers<void>();
  model.otherwise = async (call) => {
    await released.promise;
    call.text('ok').finish();
  };
  const trials = Array.from({ length: 6 }, () => attempt({ mcp_servers: [registered('missing')] }));
  await setImmediate();
  expect(resolved).toHaveBeenCalledTimes(4);
  released.resolve();
  await Promise.all(trials);
  expect(resolved).toHaveBeenCalledTimes(6);
});
