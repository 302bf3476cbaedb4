import { expect, test } from 'vitest';
import { OnceLog } from '../../../lib/once-log.ts';
import { ModelError } from '../../../models/model-error.ts';
import type { RankedTool } from '../../../tools/rank-tools.ts';
import { addMeaning, fused, type MeaningSources } from './add-meaning.ts';

const { signal } = new AbortController();

function tool(name: string, description = 'does something'): RankedTool {
  const info = { type: 'mcp', serverId: 'crm', serverName: 'crm', name } as const;
  return { name: `crm__${name}`, description, parameters: {}, info };
}

const TOOLS = ['create_invoice', 'list_customers', 'weather', 'send_mail'].map((name) => tool(name));
const [INVOICE, , WEATHER, MAIL] = TOOLS;

/** The results of a search, the requests, and the log. */
async function search(
  vectorOf: (text: string) => number[],
  {
    query = 'q',
    tools = TOOLS,
    byWords = [] as RankedTool[],
    embeddings = undefined as MeaningSources['embeddings'],
    losses = undefined as MeaningSources['losses'] | undefined,
    maxMs = 10_000,
    caller = signal,
  } = {},
) {
  const asked: string[] = [];
  const logged: object[] = [];
  const given: MeaningSources['embeddings'] = {
    name: 'own/m',
    of: (texts) => {
      asked.push(...texts);
      return Promise.resolve(texts.map((text) => Float32Array.from(vectorOf(text))));
    },
  };
  const sources = {
    embeddings: embeddings ?? given,
    losses: losses ?? new OnceLog({ warn: (fields: object) => void logged.push(fields) }),
  };
  const found = await addMeaning({ query, tools, byWords }, { ...sources, signal: caller, maxMs });
  return { found, asked, logged };
}

/** `rain` is near the weather, and less so a mail. */
function vectorOf(text: string): number[] {
  if (text === 'rain' || text.startsWith('weather')) return [1, 0];
  return text.startsWith('send_mail') ? [0.6, 0.8] : [0, 1];
}

test('a tool is found by its meaning, the nearest first, and what is unlike the query is not', async () => {
  const { found, asked, logged } = await search(vectorOf, { query: 'rain' });
  expect(found).toEqual([WEATHER, MAIL]);
  expect(asked).toEqual(['rain', ...TOOLS.map(({ info }) => `${info.name}: does something`)]);
  expect(logged).toEqual([]);
});

test('a tool that both rankings have comes before those that are first in one', async () => {
  const { found } = await search(vectorOf, { query: 'rain', byWords: [INVOICE, MAIL].flatMap((one) => one ?? []) });
  expect(found).toEqual([MAIL, INVOICE, WEATHER]);
});

test('rankings are fused by ranks alone, with 60 added to each', () => {
  expect(fused([['a', 'b', 'c'], []])).toEqual(['a', 'b', 'c']);
  expect(
    fused([
      ['a', 'b'],
      ['b', 'a'],
    ]),
  ).toEqual(['a', 'b']);
  // 1/61 is less than twice 1/120, and more than twice 1/123.
  const places = (rank: number) => Array.from({ length: rank - 1 }, (_, i) => i + 1);
  const ranked = (rank: number) =>
    fused<number | string>([
      ['first', ...places(rank).slice(1), 'both'],
      [...places(rank).map((n) => -n), 'both'],
    ]);
  expect(ranked(60)[0]).toBe('both');
  expect(ranked(63)[0]).toBe('first');
});

test('the 20 nearest are found', async () => {
  const tools = Array.from({ length: 50 }, (_, i) => tool(String(i)));
  const { found } = await search((text) => (text === 'q' ? [1, 0] : [1, Number.parseInt(text, 10)]), { tools });
  expect(found).toEqual(tools.slice(0, 20));
});

test('texts are cut, and have no half of a character', async () => {
  const { asked } = await search(() => [1], { query: '👋'.repeat(2_000), tools: [tool('x', `${'a'.repeat(996)}👋`)] });
  expect(asked).toEqual(['👋'.repeat(500), `x: ${'a'.repeat(996)}\uFFFD`]);
});

function failing(reason: Error): MeaningSources['embeddings'] {
  return { name: 'own/m', of: () => Promise.reject(reason) };
}

test('without embeddings the result is that by words, and each kind of failure is logged once', async () => {
  const byWords = TOOLS.slice(1, 3);
  const logged: object[] = [];
  const losses = new OnceLog({ warn: (fields: object, message?: string) => void logged.push({ ...fields, message }) });
  const message = 'tools are searched by words alone, and not by meaning';
  const failures = [
    [new ModelError('connection', 'the model cannot be reached'), 'the model cannot be reached'],
    [new ModelError('overloaded', 'busy'), 'busy'],
    [new TypeError('a mistake'), 'a mistake'],
  ] as const;
  for (const [error] of [...failures, ...failures]) {
    const { found } = await search(vectorOf, { byWords, losses, embeddings: failing(error) });
    expect(found).toBe(byWords);
  }
  expect(logged).toEqual(failures.map(([, reason]) => ({ model: 'own/m', reason, message })));
});

test('without a model, or for more than 2,000 tools, the result is that by words, and the log says why', async () => {
  const byWords = TOOLS.slice(1, 3);
  const tools = Array.from({ length: 2_001 }, () => TOOLS[0] ?? tool('x'));
  const many = await search(vectorOf, { byWords, tools });
  expect([many.found, many.asked]).toEqual([byWords, []]);
  expect(many.logged).toMatchObject([{ reason: expect.stringContaining('more than 2000 tools') as string }]);
  const logged: object[] = [];
  const losses = new OnceLog({ warn: (fields: object) => void logged.push(fields) });
  const sources = { embeddings: undefined, losses, signal };
  expect(await addMeaning({ query: 'q', tools: TOOLS, byWords }, sources)).toBe(byWords);
  expect(logged).toMatchObject([{ reason: expect.stringContaining('EVERTURN_EMBEDDING_MODEL') as string }]);
});

/** Ends only with its signal. */
const silent: MeaningSources['embeddings'] = {
  name: 'own/m',
  of: (_, ended) =>
    new Promise((_resolve, reject) => ended.addEventListener('abort', () => reject(new Error('aborted')))),
};

test('a model that is too slow is not waited for', async () => {
  const byWords = TOOLS.slice(1, 3);
  const { found, logged } = await search(vectorOf, { byWords, embeddings: silent, maxMs: 20 });
  expect(found).toBe(byWords);
  expect(logged).toEqual([{ model: 'own/m', reason: 'the model has not answered within 0.02 s' }]);
});

test('a search whose call is given up ends with its reason, and logs nothing', async () => {
  const caller = new AbortController();
  const logged: object[] = [];
  const losses = new OnceLog({ warn: (fields: object) => void logged.push(fields) });
  const given = search(vectorOf, { embeddings: silent, losses, caller: caller.signal });
  caller.abort(new Error('the turn was cancelled'));
  await expect(given).rejects.toThrow('the turn was cancelled');
  expect(logged).toEqual([]);
});

test('nothing is asked about an agent without tools', async () => {
  expect(await search(vectorOf, { tools: [] })).toMatchObject({ found: [], asked: [] });
});
