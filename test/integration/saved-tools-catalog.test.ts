import { beforeEach, expect, test } from 'vitest';
import { subjectNamed } from '../../src/core/subject.ts';
import type { Catalog } from '../../src/features/catalog.ts';
import {
  MAX_SAVED_TOOLS,
  type SavedTool,
  type SavedToolOwner,
} from '../../src/features/code/saved-tools/saved-tool.ts';
import { find, readTables } from '../support/raw-stores.ts';
import { openTestCatalog } from '../support/test-catalog.ts';
import type { TestDatabase } from '../support/test-database.ts';

/** The catalog's rows of saved tools. */

const NOW = Date.parse('2026-11-02T10:00:00.000Z');
const at = (seconds: number) => new Date(NOW + seconds * 1000).toISOString();

const OF_ANN: SavedToolOwner = { agentName: 'helper', subjectId: 'ann' };
const OF_AGENT: SavedToolOwner = { agentName: 'helper' };

let database: TestDatabase;
let catalog: Catalog;
beforeEach(async () => {
  ({ catalog, database } = await openTestCatalog());
  await registerAgent(NOW - 1_000);
});

const registerAgent = (now: number) =>
  catalog.agents.put('helper', { model: { name: 'm' } }, new Date(now).toISOString());

const tool = (name: string, more: Partial<SavedTool> = {}): SavedTool => ({
  category: 'reports',
  name,
  kind: 'tool',
  description: `Makes ${name}.`,
  api: 'def run(days: int = 7) -> list[str]:\n    return []\n',
  ...more,
});
const by = subjectNamed('ann');
let requests = 0;
const save = (place: SavedToolOwner, given: SavedTool, { now = NOW, request = `request ${requests++}` } = {}) =>
  catalog.savedTools.save(place, given, { by, request }, now);
const namesIn = async (place: SavedToolOwner) => (await catalog.savedTools.list(place)).map(({ name }) => name);

test('a saved tool is in its place alone, and lists have it without its code', async () => {
  await save(OF_ANN, tool('b', { impl: 'x = 1\n' }));
  await save(OF_ANN, tool('a', { category: 'z', kind: 'parser', api: 'def parse(text):\n    pass\n' }));
  await save(OF_AGENT, tool('shared'));
  expect(await catalog.savedTools.list(OF_ANN)).toEqual([
    {
      category: 'reports',
      name: 'b',
      kind: 'tool',
      description: 'Makes b.',
      signature: 'run(days: int = 7) -> list[str]',
      version: 1,
      hash: expect.stringMatching(/^[0-9a-f]{64}$/),
      createdBy: by,
      updatedAt: at(0),
    },
    expect.objectContaining({ category: 'z', name: 'a', kind: 'parser', signature: 'parse(text)' }),
  ]);
  expect(await catalog.savedTools.get(OF_ANN, tool('b'))).toMatchObject({ api: tool('b').api, impl: 'x = 1\n' });
  expect(await namesIn(OF_AGENT)).toEqual(['shared']);
  for (const place of [
    { ...OF_ANN, subjectId: 'bob' },
    { ...OF_ANN, agentName: 'other' },
  ]) {
    expect(await namesIn(place)).toEqual([]);
    expect(await catalog.savedTools.get(place, tool('b'))).toBeUndefined();
    expect(await catalog.savedTools.delete(place, tool('b'))).toBe(false);
  }
  expect(await catalog.savedTools.delete(OF_ANN, tool('b'))).toBe(true);
  expect(await namesIn(OF_ANN)).toEqual(['a']);
});

test('versions count up, and the repetition of a request saves none', async () => {
  expect(await save(OF_ANN, tool('a'), { request: 'one' })).toEqual({ version: 1, isNew: true });
  const [first] = await catalog.savedTools.list(OF_ANN);
  const changed = tool('a', { api: 'def run():\n    return 2\n' });
  expect(await save(OF_ANN, changed, { request: 'two', now: NOW + 5_000 })).toEqual({ version: 2, isNew: false });
  expect(await save(OF_ANN, tool('a'), { request: 'one' })).toEqual({ version: 1, isNew: true });
  const [second] = await catalog.savedTools.list(OF_ANN);
  expect(second).toMatchObject({ version: 2, signature: 'run()', updatedAt: at(5) });
  expect(second?.hash).not.toBe(first?.hash);
});

test('each of several tools that are saved at the same time is a version', async () => {
  const saved = await Promise.all(
    Array.from({ length: 5 }, (_, i) => save(OF_ANN, tool('a', { description: `${i}` }))),
  );
  expect(new Set(saved.map((one) => one?.version))).toEqual(new Set([1, 2, 3, 4, 5]));
});

test('a place has a limited number of tools', async () => {
  for (let i = 0; i < MAX_SAVED_TOOLS; i++) expect(await save(OF_ANN, tool(`t${i}`))).toBeDefined();
  expect(await save(OF_ANN, tool('one_more'))).toBeUndefined();
  expect(await save(OF_ANN, tool('t7'))).toMatchObject({ version: 2 });
  expect(await save(OF_AGENT, tool('one_more'))).toBeDefined();
});

test('saved tools are not those of another agent that gets the name', async () => {
  await save(OF_ANN, tool('a'));
  await save(OF_ANN, tool('b'));
  await catalog.agents.delete('helper');
  expect(await namesIn(OF_ANN)).toEqual([]);
  await registerAgent(NOW + 1_000);
  expect(await namesIn(OF_ANN)).toEqual([]);
  expect(await catalog.savedTools.get(OF_ANN, tool('a'))).toBeUndefined();
  expect(await catalog.savedTools.delete(OF_ANN, tool('b'))).toBe(false);
  expect(await save(OF_ANN, tool('a'), { now: NOW + 2_000 })).toEqual({ version: 1, isNew: true });
  expect(await namesIn(OF_ANN)).toEqual(['a']);
  expect(await database.rows.selectFrom('saved_code_tools').select('name').execute()).toEqual([{ name: 'a' }]);
});

test('descriptions and code are encrypted', async () => {
  await save(OF_ANN, tool('a', { description: 'a secret word', impl: 'a secret line' }));
  const tables = await readTables(database.rows);
  expect(find('a secret', tables)).toEqual([]);
});
