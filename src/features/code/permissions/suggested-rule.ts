import { rulePattern, ruleProblem, type RulePattern } from '../../../spec/permission-rule.ts';
import { collapseBlanks } from './collapse-blanks.ts';
import { matchesRule } from './decide-action.ts';
import { resolvePath, type CommandPiece, type PermissionAction } from './permission-action.ts';

/** Programs whose first argument is a subcommand. */
const WITH_SUBCOMMANDS = new Set(
  'git pip docker kubectl npm yarn cargo go apt brew conda poetry uv make systemctl'.split(' '),
);

/** A word without quotes, wildcards and options. */
const PLAIN_WORD = /^[\w./:@+][\w./:@+-]*$/;

/** The rule that is offered with a decision; null if none describes exactly the call and similar ones. */
export function suggestedRule(action: PermissionAction): RulePattern | null {
  const suggested = suggestionFor(action);
  const isRule = suggested && rulePattern.safeParse(suggested).success && ruleProblem(suggested) === undefined;
  return isRule && matchesRule({ ...suggested, effect: 'allow' }, action) ? suggested : null;
}

function suggestionFor(action: PermissionAction): RulePattern | undefined {
  switch (action.type) {
    case 'code':
    case 'reset':
    case 'task':
    case 'save_tool':
      return { action: action.type };
    case 'shell':
      return hasWildcards(action.text.trim().split(/\s/, 1)[0] ?? '')
        ? undefined
        : { action: 'shell', command: suggestedCommand(action) };
    case 'tool': {
      const tool = `${action.server}/${action.name}`;
      return hasWildcards(tool) ? undefined : { action: 'tool', tool };
    }
    case 'file_read':
    case 'file_write':
    case 'file_edit': {
      const resolved = resolvePath(action.path);
      const path = resolved && ('inside' in resolved ? resolved.inside : resolved.outside);
      return path === undefined || hasWildcards(path) ? undefined : { action: action.type, path };
    }
  }
}

/** All calls of a program or its subcommand; the command itself if it has no further words, or unusual ones. */
function suggestedCommand({ text, isOpaque }: CommandPiece): string {
  if (isOpaque) return text;
  const words = collapseBlanks(text).split(' ');
  const named = words.slice(0, WITH_SUBCOMMANDS.has(words[0] ?? '') ? 2 : 1);
  const isPlain = named.every((word) => PLAIN_WORD.test(word)) && words.length > named.length;
  return isPlain ? `${named.join(' ')} *` : text;
}

function hasWildcards(text: string): boolean {
  return /[*?]/.test(text);
}
