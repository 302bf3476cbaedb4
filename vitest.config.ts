import { globSync } from 'node:fs';
import { defineConfig } from 'vitest/config';
import { filesToSkip } from './test/support/requirements.ts';

/** How long a condition is polled: a busy machine takes longer than vitest's default of one second. */
const expectOptions = { poll: { timeout: 20_000 } };

const onServers = {
  expect: expectOptions,
  pool: 'forks' as const,
  testTimeout: 60_000,
  hookTimeout: 60_000,
};

const GLOBAL_SETUP = 'test/support/global-setup.ts';
const POSTGRES_SETUP = 'test/support/postgres-setup.ts';

/** What `npm test` runs beside the unit tests: each main path of the product once, on Temporal alone. */
const CORE = `test/integration/{${[
  'api,approvals,cancel,continue-as-new,crash,errors,examples,forks,idempotency',
  'lists,recorded-histories,turns,validation',
].join()}}.test.ts`;

/** The same tests with their catalogs on PostgreSQL: those of what is asked of a catalog. */
const ON_POSTGRES = `test/integration/{${[
  'agents,apart,api,approvals,catalog,collect-blobs,continue-as-new,delete-session,errors,forks,idempotency,keys',
  'limits,lists,lost-turns,openapi,outages,postgres,retention,roles,session-lists,streams,temporal-on-postgres,turns',
  'unavailable',
].join()}}.test.ts`;

/** These run on PostgreSQL only: requests that are made up for the API have more to break there. */
const ONLY_ON_POSTGRES = 'test/integration/{openapi,postgres,temporal-on-postgres}.test.ts';

const INTEGRATION = 'test/integration/**/*.test.ts';
const FAULTS = 'test/faults/*.test.ts';

/** Only the projects that are asked for say what they leave out. */
function isAskedFor(project: string): boolean {
  const projects = process.argv.flatMap((argument, index) =>
    argument === '--project'
      ? [process.argv[index + 1]]
      : argument.startsWith('--project=')
        ? [argument.slice(10)]
        : [],
  );
  return projects.length === 0 || projects.includes(project);
}

function skipped(project: string, pattern: string, setup: string[] = []): string[] {
  return isAskedFor(project) ? filesToSkip(globSync(pattern), setup) : [];
}

export default defineConfig({
  test: {
    // Tests wait more than they work: for servers, models and time-outs.
    maxWorkers: 2,
    projects: [
      {
        test: {
          name: 'unit',
          include: ['{src,docs,workflows,activities}/**/*.test.ts', 'test/unit/*.test.ts'],
          // On a machine that is busy with something else, some take more than vitest's 5 s.
          testTimeout: 60_000,
          expect: expectOptions,
        },
      },
      { test: { ...onServers, name: 'core', globalSetup: [GLOBAL_SETUP], include: [CORE] } },
      {
        test: {
          ...onServers,
          name: 'integration',
          globalSetup: [GLOBAL_SETUP],
          include: [INTEGRATION],
          exclude: [CORE, ONLY_ON_POSTGRES, ...skipped('integration', INTEGRATION)],
        },
      },
      {
        test: {
          ...onServers,
          name: 'postgres',
          globalSetup: [GLOBAL_SETUP, POSTGRES_SETUP],
          include: [ON_POSTGRES],
          exclude: skipped('postgres', ON_POSTGRES, [POSTGRES_SETUP]),
        },
      },
      {
        // Each has a Temporal, a Redis and processes of its own, and kills them; the long ones only when asked for.
        test: {
          ...onServers,
          name: 'faults',
          testTimeout: 300_000,
          hookTimeout: 120_000,
          include: [FAULTS],
          exclude: skipped('faults', FAULTS),
        },
      },
    ],
  },
});
