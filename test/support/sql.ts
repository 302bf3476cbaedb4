import { Client } from 'pg';
import { newId } from '../../src/engine/new-id.ts';

/** Creates an empty database on the server of `url`, and returns its URL. */
export async function createDatabase(url: string, options = ''): Promise<string> {
  const name = newId('req');
  await runSql(url, `create database ${name} ${options}`);
  return Object.assign(new URL(url), { pathname: `/${name}` }).href;
}

/** Runs statements one after the other, without a transaction, and returns the rows of the last. */
export async function runSql<R extends object>(url: string, ...statements: string[]): Promise<R[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    let rows: R[] = [];
    for (const statement of statements) ({ rows } = await client.query<R>(statement));
    return rows;
  } finally {
    await client.end();
  }
}
