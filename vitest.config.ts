import { defineConfig } from 'vitest/config';

const onServers = {
  pool: 'forks' as const,
  testTimeout: 60_000,
  hookTimeout: 60_000,
};

export default defineConfig({
  test: {
    projects: [
      {
        test: { name: 'unit', include: ['{src,workflows,activities}/**/*.test.ts'] },
      },
      {
        test: {
          ...onServers,
          name: 'integration',
          globalSetup: ['test/support/global-setup.ts'],
          include: ['test/integration/**/*.test.ts'],
        },
      },
      {
        // The same tests with their catalogs on PostgreSQL: those of what is asked of a catalog.
        test: {
          ...onServers,
          name: 'postgres',
          globalSetup: ['test/support/global-setup.ts', 'test/support/postgres-setup.ts'],
          include: [
            'test/integration/{api,approvals,catalog,continue-as-new,errors,forks,idempotency}.test.ts',
            'test/integration/{lists,outages,streams,turns,unavailable}.test.ts',
          ],
        },
      },
    ],
  },
});
