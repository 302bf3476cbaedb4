import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { errorMessage, ProvisionError } from '../../src/lib/errors.ts';
import type { PostgresAccess } from './postgres-access.ts';

const run = promisify(execFile);

/** The two databases and their schemas in the tool. */
export const DATABASES = {
  store: { name: 'temporal', schema: 'postgresql/v12/temporal' },
  visibility: { name: 'temporal_visibility', schema: 'postgresql/v12/visibility' },
} as const;

export const SQL_PLUGIN = 'postgres12';

/** Creates Temporal's databases and tables, and updates those that exist. */
export async function prepareSchemas({
  postgresUrl,
  access,
  sqlTool,
}: {
  postgresUrl: string;
  access: PostgresAccess;
  sqlTool: string;
}): Promise<void> {
  for (const { name, schema } of Object.values(DATABASES)) {
    await createDatabase(postgresUrl, name);
    const env = toolEnvironment(access, name);
    const tool = (...args: string[]) => orProvisionError(run(sqlTool, args, { env }));
    if (!(await hasSchema(postgresUrl, name))) await tool('setup-schema', '--version', '0.0');
    await tool('update-schema', '--schema-name', schema);
  }
}

async function createDatabase(postgresUrl: string, name: string): Promise<void> {
  await withClient(postgresUrl, async (client) => {
    const { rowCount } = await client.query('select 1 from pg_database where datname = $1', [name]);
    if (rowCount === 0) await client.query(`create database ${name}`);
  });
}

async function hasSchema(postgresUrl: string, database: string): Promise<boolean> {
  const url = Object.assign(new URL(postgresUrl), { pathname: `/${database}` }).href;
  return withClient(url, async (client) => {
    const { rows } = await client.query<{ known: boolean }>(
      "select to_regclass('schema_version') is not null as known",
    );
    return rows[0]?.known === true;
  });
}

async function withClient<T>(connectionString: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString });
  await orProvisionError(client.connect());
  try {
    return await orProvisionError(work(client));
  } finally {
    await client.end();
  }
}

async function orProvisionError<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (cause) {
    const reason = errorMessage(cause);
    throw new ProvisionError(`PostgreSQL cannot be used for Temporal: ${reason}`, { cause });
  }
}

/** In the environment, because every user of the machine can see arguments. */
function toolEnvironment({ host, port, user, password, tls }: PostgresAccess, database: string): NodeJS.ProcessEnv {
  return {
    SQL_PLUGIN,
    SQL_HOST: host,
    SQL_PORT: String(port),
    SQL_USER: user,
    SQL_PASSWORD: password,
    SQL_DATABASE: database,
    ...(tls && {
      SQL_TLS: 'true',
      SQL_TLS_DISABLE_HOST_VERIFICATION: String(!tls.verify),
      ...(tls.caFile && { SQL_TLS_CA_FILE: tls.caFile }),
    }),
  };
}
