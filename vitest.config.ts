import { globSync } from 'node:fs';
import { defineConfig } from 'vitest/config';
import {
  AT_NIGHT,
  BENCH,
  CORE,
  CRASHING,
  FAULTS,
  ON_POSTGRES,
  ONLY_ON_POSTGRES,
  READING_LOGS,
  REPLACING_MODULES,
} from './test/suites.ts';
import { INHERITED_ENV } from './test/support/inherited-env.ts';
import { LongestFirst } from './test/support/longest-first.ts';
import { filesToSkip } from './test/support/requirements.ts';

// For vitest's processes as for those of Everturn: each server has a workflow thread, which loads modules of its own.
process.env['NODE_COMPILE_CACHE'] ??= INHERITED_ENV['NODE_COMPILE_CACHE'];

/**
 * How long a condition is polled, and how long a test and a hook may take: longer than anything takes on a machine ten times
 * slower than a developer's, as CI's may be. Only failures take as long.
 */
const expectOptions = { poll: { timeout: 100_000 } };
const TEST_TIMEOUT_MS = 180_000;

/** Loaded by each worker. */
const setupFiles = ['test/support/end-with-vitest.ts'];

const unit = {
  setupFiles,
  expect: expectOptions,
  testTimeout: TEST_TIMEOUT_MS,
};

const onServers = {
  setupFiles,
  expect: expectOptions,
  pool: 'forks' as const,
  testTimeout: TEST_TIMEOUT_MS,
  hookTimeout: TEST_TIMEOUT_MS,
};

/** What tests share that run in one process, one file after the other. */
const sharing = { setupFiles: [...setupFiles, 'test/support/runtime-setup.ts'] };

/** The modules of a test are loaded once per process: a fifth of the processor time of these tests would be loading. */
const isolate = false;

const GLOBAL_SETUP = 'test/support/global-setup.ts';
const POSTGRES_SETUP = 'test/support/postgres-setup.ts';
const COMPILE_CACHE_SETUP = 'test/support/compile-cache-setup.ts';

const INTEGRATION = 'test/integration/**/*.test.ts';
/** The integration tests that belong to another project. */
const ELSEWHERE = [CORE, AT_NIGHT, ONLY_ON_POSTGRES, READING_LOGS];
const ALL_FAULTS = 'test/faults/*.test.ts';
const IMAGE = 'test/image/*.test.ts';
const NIGHTLY = 'test/nightly/*.test.ts';

const integration = {
  ...onServers,
  ...sharing,
  isolate,
  globalSetup: [GLOBAL_SETUP],
};

const underFaults = {
  ...onServers,
  ...sharing,
  isolate,
  globalSetup: [COMPILE_CACHE_SETUP],
  testTimeout: 300_000,
};

/** Whether a project runs. Only those report which files they skip. */
function isSelected(project: string): boolean {
  const projects = process.argv.flatMap((argument, index) =>
    argument === '--project'
      ? [process.argv[index + 1]]
      : argument.startsWith('--project=')
        ? [argument.slice(10)]
        : [],
  );
  if (projects.includes(`!${project}`)) return false;
  return projects.length === 0 || projects.some((one) => one === project || /[*!]/.test(one ?? ''));
}

function skipped(
  project: string,
  pattern: string,
  { setup = [], exclude = [] }: { setup?: string[]; exclude?: string[] } = {},
): string[] {
  return isSelected(project) ? filesToSkip(globSync(pattern, { exclude }), { setup }) : [];
}

export default defineConfig({
  test: {
    // Tests spend more time waiting for servers, models and time-outs than computing: three of them fit on two cores.
    maxWorkers: 3,
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          ...unit,
          name: 'unit',
          include: ['{src,docs,workflows,activities}/**/*.test.ts', 'test/unit/*.test.ts'],
          exclude: REPLACING_MODULES,
          isolate,
        },
      },
      { test: { ...unit, name: 'unit-mocked', include: REPLACING_MODULES } },
      { test: { ...integration, name: 'core', include: [CORE], exclude: [CRASHING] } },
      { test: { ...onServers, name: 'core-crashing', include: [CRASHING] } },
      {
        test: {
          ...integration,
          name: 'integration',
          include: [INTEGRATION],
          exclude: [...ELSEWHERE, ...skipped('integration', INTEGRATION, { exclude: ELSEWHERE })],
        },
      },
      {
        test: {
          ...integration,
          name: 'integration-nightly',
          include: [AT_NIGHT],
          exclude: skipped('integration-nightly', AT_NIGHT),
        },
      },
      { test: { ...onServers, name: 'integration-logs', globalSetup: [GLOBAL_SETUP], include: [READING_LOGS] } },
      {
        test: {
          ...integration,
          name: 'postgres',
          globalSetup: [GLOBAL_SETUP, POSTGRES_SETUP],
          include: [ON_POSTGRES],
          exclude: skipped('postgres', ON_POSTGRES, { setup: [POSTGRES_SETUP] }),
        },
      },
      // Each file has its own Temporal, Redis and processes, and kills them. The long ones run with LONG=1 only.
      {
        test: {
          ...underFaults,
          name: 'faults',
          include: [FAULTS],
          exclude: skipped('faults', FAULTS),
        },
      },
      {
        test: {
          ...underFaults,
          name: 'faults-nightly',
          include: [ALL_FAULTS],
          exclude: [FAULTS, ...skipped('faults-nightly', ALL_FAULTS, { exclude: [FAULTS] })],
        },
      },
      {
        // Builds the images, and kills their containers.
        test: {
          ...onServers,
          name: 'image',
          testTimeout: 300_000,
          include: [IMAGE],
          exclude: skipped('image', IMAGE),
        },
      },
      {
        // Programs of others, whose installation takes longer than their tests.
        test: {
          ...onServers,
          name: 'nightly',
          globalSetup: [GLOBAL_SETUP],
          hookTimeout: 300_000,
          include: [NIGHTLY],
          exclude: skipped('nightly', NIGHTLY),
        },
      },
      {
        // After everything else, because it compares times.
        test: {
          ...onServers,
          name: 'bench',
          testTimeout: 300_000,
          include: [BENCH],
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
