import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { changedFiles } from './changed-files.ts';
import { CheckoutCopy } from './checkout-copy.ts';
import { WRONG_CHANGES, type WrongChange } from './wrong-changes.ts';

/**
 * Makes each wrong change of the list, and fails if a test stays green. Arguments are parts of the names of the changed
 * files or of their tests. With `--changed` only those of files, or of tests, that differ from the base of the branch.
 */
const { values, positionals } = parseArgs({ options: { changed: { type: 'boolean' } }, allowPositionals: true });
const since = values.changed ? changedFiles() : undefined;
const selected = WRONG_CHANGES.filter(
  ({ file, test }) =>
    (!since || since.has(file) || since.has(test)) &&
    (positionals.length === 0 || positionals.some((part) => file.includes(part) || test.includes(part))),
);
const where = since && (since.size > 0 ? ' in changed files' : ': no file differs from a base, or no base is known');
process.stdout.write(`${selected.length} of ${WRONG_CHANGES.length} wrong changes${where ?? ''}\n`);
if (selected.length > 0) process.exitCode = (await check(selected)) ? 0 : 1;

async function check(changes: WrongChange[]): Promise<boolean> {
  const copies = await Promise.all(
    Array.from({ length: Math.min(availableParallelism(), changes.length) }, () => CheckoutCopy.create()),
  );
  try {
    // A test that fails without a change notices nothing.
    const before = await copies[0]?.run([...new Set(changes.map(({ test }) => test))]);
    for (const failure of before?.failed ?? []) process.stdout.write(`fails without a change: ${failure}\n`);
    const waiting = changes.entries();
    let missed = 0;
    const work = async (copy: CheckoutCopy): Promise<void> => {
      for (const [number, change] of waiting) {
        const isUsable = before?.passedFiles.has(change.test) === true;
        const problem = isUsable ? await problemOf(copy, change) : 'its test fails without it';
        if (problem !== undefined) missed += 1;
        const { file, rule, test } = change;
        const outcome = problem === undefined ? 'noticed' : `NOT NOTICED (${problem})`;
        process.stdout.write(`${number + 1} ${outcome}: ${file}: ${rule} (${test})\n`);
      }
    };
    await Promise.all(copies.map(work));
    process.stdout.write(`${changes.length - missed} noticed, ${missed} not\n`);
    return missed === 0;
  } finally {
    await Promise.all(copies.map((copy) => copy.remove()));
  }
}

/** Undefined if a test fails with the change. A file that cannot be loaded, or has no test, notices nothing. */
async function problemOf(copy: CheckoutCopy, change: WrongChange): Promise<string | undefined> {
  const results = await copy.runWith(change);
  if (!results) return 'vitest gave no result';
  const { passed, failed, broken } = results;
  if (failed.length > 0) return undefined;
  return broken[0] ?? (passed > 0 ? `${passed} tests pass` : 'no test has run');
}
