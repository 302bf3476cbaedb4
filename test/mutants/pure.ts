import { parseArgs } from 'node:util';
import { Stryker } from '@stryker-mutator/core';
import { changedLines } from './changed-files.ts';

/**
 * Has Stryker mutate src/core, which is pure, and lists the mutants that the tests beside it do not notice. Fails if they are
 * more than a fifth of all. Arguments are parts of the names of files. With `--changed` only the lines that differ from
 * the base of the branch are mutated. Neither fails: a line that was touched may have had such a mutant before.
 */
const { values, positionals } = parseArgs({ options: { changed: { type: 'boolean' } }, allowPositionals: true });
const TESTS = 'src/core/**/*.test.ts';
const parts = values.changed
  ? changedLines('src/core', `:(exclude,glob)${TESTS}`)
  : positionals.map((part) => `src/core/**/*${part}*.ts`);
const isWhole = !values.changed && parts.length === 0;

const stryker = new Stryker({
  mutate: [...(isWhole ? ['src/core/**/*.ts'] : parts), `!${TESTS}`],
  // The wording of messages, what the compiler would refuse, and what any test of the function notices.
  mutator: {
    excludedMutations: ['StringLiteral', 'ObjectLiteral', 'ArrayDeclaration', 'ArrowFunction', 'BlockStatement'],
  },
  // A constant of a module would be tested with all tests.
  ignoreStatic: true,
  testRunner: 'vitest',
  vitest: { configFile: 'test/mutants/pure-tests.config.ts', related: false },
  // Vitest needs no tsconfig, and Stryker's rewriting of it does not support TypeScript 7.
  tsconfigFile: 'none.json',
  // For a busy machine. Stryker counts the passes of a loop that does not end.
  timeoutMS: 30_000,
  thresholds: { high: 90, low: 80, break: isWhole ? 80 : null },
  reporters: ['clear-text'],
  clearTextReporter: { logTests: false, reportTests: false },
});

if (isWhole || parts.length > 0) await stryker.runMutationTest();
else process.stdout.write('no line of src/core differs from a base, or no base is known\n');
