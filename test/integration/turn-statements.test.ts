import { DefaultQueryExecutor, type CompiledQuery } from 'kysely';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { say } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

/** How many statements of SQL a turn costs. */

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server.stop());

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
  onTestFinished(() => void vi.restoreAllMocks());
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
  statements.length = 0;
  await server.api.turn(id, 'hi').done;
  await archived(2);
  const own = statements.filter((statement) => statement !== 'select "state" from "turns"');
  expect(own.length, own.join('\n')).toBeLessThan(36);
  // What it must do: a count near 0 would be one of nothing.
  expect(own.filter((statement) => statement.startsWith('insert into "archive"'))).toHaveLength(1);
});
