import { defineConfig } from 'vitest/config';

/** How long is waited for something to become true: a busy machine takes longer than vitest's second. */
const expectOptions = { poll: { timeout: 20_000 } };

const onServers = {
  expect: expectOptions,
  pool: 'forks' as const,
  testTimeout: 60_000,
  hookTimeout: 60_000,
};

export default defineConfig({
  test: {
    // Tests wait more than they work: for servers, models and time-outs.
    maxWorkers: 2,
    projects: [
      {
        // On a machine that is busy with something else, some take more than vitest's 5 s.
        test: {
          name: 'unit',
          include: ['{src,docs,workflows,activities}/**/*.test.ts'],
          testTimeout: 60_000,
          expect: expectOptions,
        },
      },
      {
        test: {
          ...onServers,
          name: 'integration',
          globalSetup: ['test/support/global-setup.ts'],
          include: ['test/integration/**/*.test.ts'],
          // Whatever is made up for the API has more to break on PostgreSQL.
          exclude: ['test/integration/{openapi,postgres,temporal-on-postgres}.test.ts'],
        },
      },
      {
        // The same tests with their catalogs on PostgreSQL: those of what is asked of a catalog.
        test: {
          ...onServers,
          name: 'postgres',
          globalSetup: ['test/support/global-setup.ts', 'test/support/postgres-setup.ts'],
          include: [
            'test/integration/{agents,apart,api,approvals,catalog,collect-blobs,continue-as-new,errors,forks}.test.ts',
            'test/integration/{delete-session,idempotency,keys,limits,lists,lost-turns,openapi,outages,postgres}.test.ts',
            'test/integration/{retention,roles,session-lists,streams,temporal-on-postgres,turns}.test.ts',
            'test/integration/unavailable.test.ts',
          ],
        },
      },
      {
        // Each has a Temporal, a Redis and processes of its own, and kills them; the long ones only when asked for.
        test: {
          ...onServers,
          name: 'faults',
          testTimeout: 300_000,
          hookTimeout: 120_000,
          include: ['test/faults/*.test.ts'],
        },
      },
    ],
  },
});
