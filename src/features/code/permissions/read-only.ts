import { collapseBlanks } from './collapse-blanks.ts';
import type { AppliedRule } from './decide-action.ts';

/** Without git: it runs programs that its configuration names, which code can write without a decision. */
const COMMANDS = 'pwd whoami id uname date uptime which ls tree stat file du df wc cat head tail ps';

/** Characters by which the shell makes other words than those in the text. */
const EXPANDS = /[$`{}]/;

/** `--output`, also shortened as GNU programs accept it, and `-o`, also among other short options. */
const WRITES = /^(?:--ou|-[a-z]*o)/i;

/** `-s`, `--set`, or a time without an option. */
const SETS_DATE = /^(?:--s|-[a-z]*s|\d)/i;

/** Options of `file` that compile a file of patterns, and write it. */
const COMPILES = /^(?:--c|-[a-z]*C)/;

/** The rules of the preset `read_only`: allow commands that only read, and ask before files with secrets are read. */
export const READ_ONLY: readonly AppliedRule[] = [
  ...COMMANDS.split(' ').flatMap((name) => {
    return [name, `${name} *`].map((pattern): AppliedRule => ({
      effect: 'allow',
      action: 'shell',
      command: pattern,
      isOfAgent: true,
      excepts: writes,
    }));
  }),
  { effect: 'ask', action: 'file_read', path: '**/.env*', isOfAgent: true },
];

/** Whether the text of a command of the preset has options that write, or cannot be judged. */
function writes(command: string): boolean {
  if (EXPANDS.test(command)) return true;
  const words = collapseBlanks(command)
    .replaceAll(/["'\\]/g, '')
    .split(' ');
  const [name] = words;
  const sets = name === 'date' ? SETS_DATE : name === 'file' ? COMPILES : undefined;
  return words.slice(1).some((word) => WRITES.test(word) || sets?.test(word));
}
