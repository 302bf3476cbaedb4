import path from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Files that take a minute or more, although some are short: the last worker would work on them alone. */
const LONGEST = [
  'openapi',
  'recovery',
  'guides',
  'waiting-turns',
  'lost-attempts',
  'operators',
  'examples',
  'asking-servers',
  'turn-inspect',
];

/** Begins with the files that take longest. Vitest has their durations only after the first run on a machine. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.toSorted((a, b) => rank(a) - rank(b));
  }
}

function rank({ moduleId }: TestSpecification): number {
  const index = LONGEST.indexOf(path.basename(moduleId, '.test.ts'));
  return index < 0 ? LONGEST.length : index;
}
