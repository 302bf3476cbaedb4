import { DefaultQueryExecutor, type CompiledQuery } from 'kysely';
import { afterAll, beforeAll, expect, onTestFinished, test, vi, type MockInstance } from 'vitest';
import { Agents } from '../../src/catalog/agents.ts';
import { Delegations } from '../../src/features/delegation/delegation-rows.ts';
import { eventually } from '../support/eventually.ts';
import { say } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** How many statements of SQL a turn costs. */

let server: TestServer;
let lastOfSweep: MockInstance;
beforeAll(async () => {
  lastOfSweep = vi.spyOn(Agents.prototype, 'forgetSpecs');
  server = await startTestServer();
});
afterAll(() => server.stop());

/** Waits until a method of the catalog has been carried out this often. */
const carriedOut = (method: MockInstance, count: number) =>
  eventually(() => {
    const ended = method.mock.settledResults.filter(({ type }) => type === 'fulfilled');
    expect(ended.length).toBeGreaterThanOrEqual(count);
  });

test('a plain turn takes fewer than 36 statements, from its request to its archive', async () => {
  const statements: string[] = [];
  // oxlint-disable-next-line typescript/unbound-method -- called on what the spy is called on
  const { executeQuery } = DefaultQueryExecutor.prototype;
  const counted = function <R>(this: DefaultQueryExecutor, query: CompiledQuery<R>) {
    // The keys are read once a minute, by readiness checks too.
    if (!query.sql.includes('"api_keys"')) statements.push(query.sql);
    return executeQuery.call(this, query) as ReturnType<typeof executeQuery<R>>;
  };
  vi.spyOn(DefaultQueryExecutor.prototype, 'executeQuery').mockImplementation(counted);
  const notified = vi.spyOn(Delegations.prototype, 'unnotifiedOf');
  onTestFinished(() => void vi.restoreAllMocks());
  // The next sweep is in three minutes.
  await carriedOut(lastOfSweep, 1);
  await server.api.putAgent('plain', { model: { name: 'plain' } });
  server.model.script('plain', say('One.'), say('Two.'));
  const id = await server.api.createSession('plain');
  const archived = (count: number) =>
    eventually(async () => {
      const rows = await server.database.rows.selectFrom('turns').select('state').execute();
      expect(rows.map(({ state }) => state)).toEqual(Array.from({ length: count }, () => 'ended'));
    });
  await server.api.turn(id, 'hi').done;
  await archived(1);
  // Its worker looks for delegations when the turn has ended, and again when it is in the archive.
  await carriedOut(notified, 2);
  statements.length = 0;
  await server.api.turn(id, 'hi').done;
  await archived(2);
  const own = statements.filter((statement) => statement !== 'select "state" from "turns"');
  expect(own.length, own.join('\n')).toBeLessThan(36);
  // What it must do: a count near 0 would be one of nothing.
  expect(own.filter((statement) => statement.startsWith('insert into "archive"'))).toHaveLength(1);
});
