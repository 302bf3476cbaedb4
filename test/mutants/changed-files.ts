import { execFileSync } from 'node:child_process';

/** The branches that others are merged into. */
const BASES = ['origin/main', 'main'];

/** The files that differ from where this branch has begun; none if that is unknown. */
export function changedFiles(): Set<string> {
  const base = mergeBase();
  return new Set(base === undefined ? [] : git('diff', '--name-only', base)?.split('\n'));
}

/** The lines that differ from there, of files in `paths` of Git: `<file>:<first>-<last>`. */
export function changedLines(...paths: string[]): string[] {
  const base = mergeBase();
  const diff = base === undefined ? undefined : git('diff', '--unified=0', base, '--', ...paths);
  let file = '';
  return (diff ?? '').split('\n').flatMap((line) => {
    if (line.startsWith('+++ b/')) file = line.slice('+++ b/'.length);
    const [, first, count = '1'] = /^@@ \S+ \+(\d+)(?:,(\d+))? @@/.exec(line) ?? [];
    return first === undefined || count === '0' ? [] : [`${file}:${first}-${Number(first) + Number(count) - 1}`];
  });
}

/** The commit at which this branch has begun; undefined on the base itself, or without one. */
function mergeBase(): string | undefined {
  const head = git('rev-parse', 'HEAD');
  return BASES.map((branch) => git('merge-base', 'HEAD', branch)).find((commit) => commit && commit !== head);
}

function git(...args: string[]): string | undefined {
  try {
    return execFileSync('git', args, {
      encoding: 'utf8',
      maxBuffer: 100_000_000,
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  } catch {
    return undefined;
  }
}
