import { DefaultQueryExecutor } from 'kysely';
import { afterAll, beforeAll, test } from 'vitest';
import { say } from '../support/scripted-model.ts';
import { startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(() => server.stop());

test('count', async () => {
  const seen: string[] = [];
  const proto = Object.getPrototypeOf(DefaultQueryExecutor.prototype);
  const before = proto.executeQuery;
  proto.executeQuery = function (query: { sql: string }, ...rest: unknown[]) {
    seen.push(query.sql);
    return before.call(this, query, ...rest);
  };
  await server.api.putAgent('plain', { model: { name: 'plain' } });
  server.model.script('plain', ...Array.from({ length: 12 }, () => say('Hi.')));
  const id = await server.api.createSession('plain');
  for (let i = 0; i < 3; i++) await server.api.turn(id, 'hi').done;
  await new Promise((r) => setTimeout(r, 3000));
  for (let i = 0; i < 3; i++) {
    seen.length = 0;
    await server.api.turn(id, 'hi').done;
    await new Promise((r) => setTimeout(r, 3000));
    console.log('STATEMENTS', seen.length);
  }
  for (const one of seen) console.log('SQL', one.slice(0, 150));
});
