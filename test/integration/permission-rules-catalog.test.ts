import { beforeEach, expect, test } from 'vitest';
import { subjectNamed } from '../../src/core/subject.ts';
import type { Catalog } from '../../src/features/catalog.ts';
import type { RuleTarget } from '../../src/features/code/permissions/rule-rows.ts';
import { MAX_RULES, type PermissionRule } from '../../src/spec/permission-rule.ts';
import { insertSession } from '../support/insert-session.ts';
import { find, readTables } from '../support/raw-stores.ts';
import { openTestCatalog } from '../support/test-catalog.ts';
import type { TestDatabase } from '../support/test-database.ts';

/** The catalog's rows of the rules that users have made. */

const NOW = Date.parse('2026-11-02T10:00:00.000Z');
const at = (seconds: number) => new Date(NOW + seconds * 1000).toISOString();

const SESSION: RuleTarget = { scope: 'session', sessionId: 'ses_1' };
const ALWAYS: RuleTarget = { scope: 'always', subjectId: 'ann', agentName: 'helper' };
const CELL: RuleTarget = { scope: 'cell', sessionId: 'ses_1', threadId: 'main', toolCallId: 'call_1' };

let database: TestDatabase;
let catalog: Catalog;
beforeEach(async () => {
  ({ catalog, database } = await openTestCatalog());
  await registerAgent(NOW - 1_000);
});

const registerAgent = (now: number) =>
  catalog.agents.put('helper', { model: { name: 'm' } }, new Date(now).toISOString());

const rule = (command: string, more: Partial<PermissionRule> = {}): PermissionRule =>
  ({ effect: 'allow', action: 'shell', command, ...more }) as PermissionRule;
const by = subjectNamed('ann');
const add = (place: RuleTarget, given: PermissionRule, now = NOW) =>
  catalog.permissionRules.add(place, { rule: given, by }, now);
const commandsIn = async (places: RuleTarget[], now = NOW) =>
  (await catalog.permissionRules.in(places, now)).map(({ rule: found }) => ('command' in found ? found.command : ''));

test('a rule counts in its place alone, with the subject that has made it', async () => {
  for (const [place, command] of [
    [SESSION, 'of session'],
    [ALWAYS, 'of agent'],
    [CELL, 'of cell'],
  ] as const) {
    await add(place, rule(command));
  }
  expect(await commandsIn([SESSION])).toEqual(['of session']);
  expect((await commandsIn([SESSION, ALWAYS, CELL])).toSorted()).toEqual(['of agent', 'of cell', 'of session']);
  expect(
    await commandsIn([
      { ...CELL, toolCallId: 'call_2' },
      { ...ALWAYS, subjectId: 'bob' },
    ]),
  ).toEqual([]);
  expect(
    await commandsIn([
      { ...ALWAYS, agentName: 'other' },
      { scope: 'session', sessionId: 'ses_2' },
    ]),
  ).toEqual([]);
  const [stored] = await catalog.permissionRules.in([ALWAYS], NOW);
  expect(stored).toMatchObject({ scope: 'always', createdBy: by, createdAt: at(0), rule: rule('of agent') });
});

test('an equal rule is found again, and one that differs is another', async () => {
  const first = await add(SESSION, rule('ls'));
  expect(first?.isNew).toBe(true);
  const again = await add(SESSION, { command: 'ls', action: 'shell', effect: 'allow' });
  expect(again).toEqual({ stored: first?.stored, isNew: false });
  expect((await add(SESSION, rule('ls', { effect: 'deny' })))?.isNew).toBe(true);
  expect((await add(CELL, rule('ls')))?.isNew).toBe(true);
});

test('a rule that has expired no longer counts, and leaves its place to others', async () => {
  await add(SESSION, rule('ls', { expires_at: at(60) }));
  expect(await commandsIn([SESSION], NOW + 59_999)).toEqual(['ls']);
  expect(await commandsIn([SESSION], NOW + 60_000)).toEqual([]);
  await add(SESSION, rule('pwd'), NOW + 60_000);
  expect(await database.rows.selectFrom('permission_rules').select('id').execute()).toHaveLength(1);
});

test('a place has a limited number of rules', async () => {
  for (let i = 0; i < MAX_RULES; i++) expect(await add(SESSION, rule(`c${i}`))).toBeDefined();
  expect(await add(SESSION, rule('one more'))).toBeUndefined();
  expect((await add(SESSION, rule('c7')))?.isNew).toBe(false);
  expect(await add(CELL, rule('one more'))).toBeDefined();
});

test('a rule is deleted from its own place only, and those of a cell with it', async () => {
  const { stored } = (await add(SESSION, rule('ls'))) ?? {};
  await add(CELL, rule('pwd'));
  expect(await catalog.permissionRules.delete(ALWAYS, stored?.id ?? '')).toBe(false);
  expect(await catalog.permissionRules.delete(SESSION, stored?.id ?? '')).toBe(true);
  expect(await catalog.permissionRules.delete(SESSION, stored?.id ?? '')).toBe(false);
  await catalog.permissionRules.deleteCell('ses_1', { threadId: 'main', toolCallId: 'call_2' });
  expect(await commandsIn([CELL])).toEqual(['pwd']);
  await catalog.permissionRules.deleteCell('ses_1', { threadId: 'main', toolCallId: 'call_1' });
  expect(await commandsIn([CELL])).toEqual([]);
});

test('rules for an agent do not count for another one that gets its name', async () => {
  await add(ALWAYS, rule('ls'));
  await catalog.agents.delete('helper');
  expect(await commandsIn([ALWAYS])).toEqual([]);
  await registerAgent(NOW + 1_000);
  expect(await commandsIn([ALWAYS])).toEqual([]);
  expect((await add(ALWAYS, rule('ls'), NOW + 2_000))?.isNew).toBe(true);
  expect(await commandsIn([ALWAYS])).toEqual(['ls']);
});

test('rules are encrypted, and those of a session are removed with it', async () => {
  await insertSession(catalog, { id: 'ses_1', at: at(0) });
  await add(SESSION, rule('a secret command'));
  await add(CELL, rule('a secret of a cell'));
  await add(ALWAYS, rule('ls'));
  const tables = await readTables(database.rows);
  expect(find('a secret', tables)).toEqual([]);
  await catalog.sessions.delete('ses_1', at(1));
  await catalog.sessions.forget('ses_1', { now: at(2), again: undefined });
  expect(await commandsIn([SESSION, CELL, ALWAYS])).toEqual(['ls']);
});
