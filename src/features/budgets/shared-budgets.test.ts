import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import type { Account, Spending, TurnWork } from './spending-rows.ts';
import { NO_USAGE } from '../../core/records/usage.ts';
import { ModelError } from '../../models/model-error.ts';
import { createModelFetch } from '../../models/model-fetch.ts';
import type { ModelChunk, ModelRequest } from '../../models/provider.ts';
import type { ModelTarget } from '../../models/providers.ts';
import { newId } from '../../engine/new-id.ts';
import { BudgetReached, BudgetsUnavailable, SharedBudgets } from './shared-budgets.ts';
import { isUnavailable } from '../../engine/unavailable.ts';

const owner = { subjectId: 'ann', draftRoles: null };
const report = { scope: 'session' as const, limit: { steps: 1 }, spent: { steps: 1 } };

/** A request of two tokens, estimated from its characters. */
const REQUEST: ModelRequest = {
  model: 'm',
  params: {},
  system: 'Be good.',
  instructionsLength: 8,
  skillsLength: 0,
  transcript: [],
  tools: [],
  responseFormat: undefined,
  fileContent: () => Promise.reject(new Error('there is none')),
};

let counted: string[];

beforeEach(() => void vi.useFakeTimers({ toFake: ['Date'] }));
afterEach(() => void vi.useRealTimers());

/**
 * The chunks of a call of a model with the price of 1 USD per token, until `takes` of them were read. Its turn was created
 * a minute ago, and was idle for half of it.
 */
async function call({
  isReached = false,
  takes = Infinity,
  sessionLimit = { steps: 1 },
  says,
  failure,
  endpoint,
  outage,
}: {
  isReached?: boolean;
  takes?: number;
  sessionLimit?: { steps: number };
  /** The text of the model before it fails. */
  says?: string;
  /** How the model fails before its answer is complete. */
  failure?: Error;
  /** The model is asked here before that, by a request that the caller cancels when it has arrived. */
  endpoint?: { url: string; arrived: Promise<void> };
  /** How the catalog fails. */
  outage?: Error;
} = {}): Promise<ModelChunk[]> {
  counted = [];
  const keys = (accounts: readonly Account[]) => accounts.map(({ scope, id }) => `${scope}/${id}`).join();
  const spending = {
    begin: (accounts: readonly Account[], { workedMs }: TurnWork) => {
      counted.push(`begins after ${workedMs} ms: ${keys(accounts)}`);
      if (outage) return Promise.reject(outage);
      return Promise.resolve(isReached ? report : undefined);
    },
    takeBack: (accounts: readonly Account[]) => {
      counted.push(`is taken back: ${keys(accounts)}`);
      return Promise.resolve();
    },
    settle: (
      accounts: readonly Account[],
      { workedMs }: TurnWork,
      { tokens, usd }: { tokens: number; usd: number },
    ) => {
      counted.push(`${tokens} tokens, ${usd} USD, ${workedMs} ms: ${keys(accounts)}`);
      return Promise.resolve();
    },
  };
  async function* stream(): AsyncGenerator<ModelChunk> {
    counted.push('called');
    if (endpoint) await ask(endpoint);
    if (says !== undefined) yield { content: says };
    if (failure) throw failure;
    yield { content: 'a' };
    vi.setSystemTime(Date.now() + 5_000);
    yield { usage: { ...NO_USAGE, inputTokens: 3, outputTokens: 2 } };
    yield { content: 'b' };
  }
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what a metered call needs
  const target = { provider: { stream }, cost: () => 5 } as unknown as ModelTarget;
  const budgets = new SharedBudgets({
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what a metered call needs
    catalog: { spending: spending as unknown as Spending },
    config: { subjectBudget: { period: 'month', limit: { steps: 1 } } },
    log: pino({ level: 'silent' }),
  });
  const turnId = newId('turn', Date.now() - 60_000);
  const metered = budgets.metered(target, { turnId, sessionId: 'ses_1', owner, sessionLimit, idleMs: 30_000 });
  const chunks: ModelChunk[] = [];
  for await (const chunk of metered.stream(REQUEST, new AbortController().signal)) {
    chunks.push(chunk);
    if (chunks.length >= takes) break;
  }
  return chunks;
}

/** Ends when the request is cancelled, or could not be sent. */
async function ask({ url, arrived }: { url: string; arrived: Promise<void> }): Promise<void> {
  const controller = new AbortController();
  void arrived.then(() => controller.abort());
  const send = createModelFetch(5_000);
  await send(url, { method: 'POST', body: '{}', signal: controller.signal }).catch(() => undefined);
}

/** A model that is silent. */
async function silentModel(): Promise<{ url: string; arrived: Promise<void>; server: Server }> {
  const { promise: arrived, resolve } = Promise.withResolvers<void>();
  const server = createServer(() => resolve());
  onTestFinished(() => void server.closeAllConnections());
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => void server.close());
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it listens on a port
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}/`, arrived, server };
}

const BOTH = 'session/ses_1,subject/month/ann';
const BEGINS = `begins after 30000 ms: ${BOTH}`;
const ENDS = `5 tokens, 5 USD, 35000 ms: ${BOTH}`;

test('a model call counts before it is made, and what it has used when it has ended', async () => {
  expect(await call()).toHaveLength(3);
  expect(counted).toEqual([BEGINS, 'called', ENDS]);
});

test('a call that is thrown away counts, with what it has reported', async () => {
  await call({ takes: 2 });
  expect(counted).toEqual([BEGINS, 'called', ENDS]);
});

test('an answer that is cut off before its model reports is counted by its characters', async () => {
  await call({ takes: 1 });
  expect(counted).toEqual([BEGINS, 'called', `3 tokens, 5 USD, 30000 ms: ${BOTH}`]);
});

test('a request that was sent and is cancelled before the first character is counted by its input', async () => {
  const stopped = new DOMException('stopped', 'AbortError');
  const failures = [stopped, new ModelError('stalled', 'silent'), new ModelError('connection', 'reset')];
  for (const failure of failures) {
    await expect(call({ endpoint: await silentModel(), failure })).rejects.toBe(failure);
    expect(counted).toEqual([BEGINS, 'called', `2 tokens, 5 USD, 30000 ms: ${BOTH}`]);
  }
});

test('a request that was sent and reports its usage counts once', async () => {
  await call({ endpoint: await silentModel() });
  expect(counted).toEqual([BEGINS, 'called', ENDS]);
});

test('a request that was refused, or did not leave, costs nothing', async () => {
  const refused = new ModelError('overloaded', 'later');
  await expect(call({ endpoint: await silentModel(), failure: refused })).rejects.toBe(refused);
  expect(counted).toEqual([BEGINS, 'called', `is taken back: ${BOTH}`]);
  const { server, ...closed } = await silentModel();
  await new Promise((resolve) => server.close(resolve));
  const failure = new ModelError('connection', 'cannot be reached');
  await expect(call({ endpoint: closed, failure })).rejects.toBe(failure);
  expect(counted).toEqual([BEGINS, 'called']);
});

test('a call that its provider refuses is not a step, one that fails otherwise is', async () => {
  await expect(call({ failure: new ModelError('rate_limited', 'later') })).rejects.toThrow('later');
  expect(counted).toEqual([BEGINS, 'called', `is taken back: ${BOTH}`]);
  await expect(call({ failure: new ModelError('broken_stream', 'cut') })).rejects.toThrow('cut');
  expect(counted).toEqual([BEGINS, 'called']);
});

test('a call that its provider refuses after the first character is a step, and is counted by its characters', async () => {
  const failure = new ModelError('overloaded', 'later');
  await expect(call({ says: 'a', failure })).rejects.toBe(failure);
  expect(counted).toEqual([BEGINS, 'called', `3 tokens, 5 USD, 30000 ms: ${BOTH}`]);
});

test('a call is not made while the budgets cannot be read', async () => {
  const outage = Object.assign(new Error('connect'), { code: 'EIO' });
  const error = await call({ outage }).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(BudgetsUnavailable);
  expect(isUnavailable(error)).toBe(true);
  expect(counted).toEqual([BEGINS]);
});

test('a call above a budget is not made', async () => {
  await expect(call({ isReached: true })).rejects.toThrow(BudgetReached);
  expect(counted).toEqual([BEGINS]);
});
