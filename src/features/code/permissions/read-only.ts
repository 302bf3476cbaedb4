import { collapseBlanks } from './collapse-blanks.ts';
import type { AppliedRule } from './decide-action.ts';

/** Not git, whose configuration names programs that it runs, and can be written by code without a decision. */
const COMMANDS = 'pwd whoami id uname date uptime which ls tree stat file du df wc cat head tail ps';

/** What the shell makes words of that this text does not have. */
const EXPANDS = /[$`{}]/;

/** `--output`, also shortened as GNU programs accept it, and `-o`, also among other short options. */
const WRITES = /^(?:--ou|-[a-z]*o)/i;

/** `-s`, `--set`, or a time without an option. */
const SETS_DATE = /^(?:--s|-[a-z]*s|\d)/i;

/** Compiles a file of patterns, and writes it. */
const COMPILES = /^(?:--c|-[a-z]*C)/;

/** The rules of the preset `read_only`: commands that read, without options that write; files with secrets are asked about. */
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

/** Whether a command that the preset names may write, as far as its text says. */
function writes(command: string): boolean {
  if (EXPANDS.test(command)) return true;
  const words = collapseBlanks(command)
    .replaceAll(/["'\\]/g, '')
    .split(' ');
  const [name] = words;
  const sets = name === 'date' ? SETS_DATE : name === 'file' ? COMPILES : undefined;
  return words.slice(1).some((word) => WRITES.test(word) || sets?.test(word));
}
