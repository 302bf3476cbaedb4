import { globSync } from 'node:fs';
import { expect, test, vi } from 'vitest';
import { CORE } from '../suites.ts';
import { filesToSkip, REQUIREMENTS } from '../support/requirements.ts';

const FILES = globSync(['test/{integration,faults,image,nightly}/**/*.test.ts']);
const missing = (...names: string[]) => REQUIREMENTS.filter(({ name }) => names.includes(name));

test('no file is skipped and nothing is reported when no program is missing', () => {
  const report = vi.fn<(line: string) => void>();
  expect(filesToSkip(FILES, { missing: [], isCi: true, report })).toEqual([]);
  expect(report).not.toHaveBeenCalled();
});

test('the core tests need none of the programs', () => {
  const core = globSync(CORE);
  expect(core.length).toBeGreaterThan(5);
  expect(filesToSkip(core, { missing: REQUIREMENTS, isCi: true })).toEqual([]);
});

test('each program is needed by at least one test', () => {
  for (const requirement of REQUIREMENTS) {
    const skipped = filesToSkip(FILES, { missing: [requirement], isCi: false, report: () => {} });
    expect(skipped, requirement.name).not.toEqual([]);
    expect(skipped.length, requirement.name).toBeLessThan(FILES.length);
  }
});

test('a file that needs a missing program through another module is skipped, with the command that installs it', () => {
  const lines: string[] = [];
  const files = ['test/integration/turns.test.ts', 'test/faults/killed-workers.test.ts'];
  const skipped = filesToSkip(files, {
    missing: missing('Redis'),
    isCi: false,
    report: (line) => void lines.push(line),
  });
  expect(skipped).toEqual(['test/faults/killed-workers.test.ts']);
  expect(lines).toEqual(['skipped: test/faults/killed-workers.test.ts (needs Redis: apt-get install redis-server)']);
});

test('an import of types does not make a program needed', () => {
  // It imports the type of a PostgreSQL server, for the one scenario that has one.
  const files = ['test/faults/killed-workers.test.ts', 'test/faults/postgres-away.test.ts'];
  const skipped = filesToSkip(files, { missing: missing('PostgreSQL'), isCi: false, report: () => {} });
  expect(skipped).toEqual(['test/faults/postgres-away.test.ts']);
});

test('a file that needs two missing programs is reported once, with both', () => {
  const lines: string[] = [];
  const file = 'test/integration/postgres.test.ts';
  const setup = ['test/support/redis.ts'];
  filesToSkip([file], {
    setup,
    missing: missing('PostgreSQL', 'Redis'),
    isCi: false,
    report: (line) => void lines.push(line),
  });
  expect(lines).toEqual([
    `skipped: ${file} (needs PostgreSQL: apt-get install postgresql; Redis: apt-get install redis-server)`,
  ]);
});

test('under CI a missing program is a failure that names the files', () => {
  const files = ['test/integration/redis.test.ts', 'test/integration/turns.test.ts'];
  expect(() => filesToSkip(files, { missing: missing('Redis'), isCi: true })).toThrow(
    'programs are missing:\nskipped: test/integration/redis.test.ts (needs Redis: apt-get install redis-server)',
  );
});
