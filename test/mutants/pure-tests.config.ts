import { defineConfig } from 'vitest/config';

/** The tests that must notice Stryker's mutants of src/core: those beside it. */
export default defineConfig({
  test: {
    include: ['src/core/**/*.test.ts'],
    // It runs all of src/core with random turns, for seconds, and so would be run for each mutant.
    exclude: ['src/core/continued-turns.test.ts'],
    setupFiles: ['test/mutants/first-counterexample.ts'],
    isolate: false,
    testTimeout: 60_000,
  },
});
