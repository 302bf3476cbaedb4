import { cpuStopwatch } from '../../../lib/timeout.ts';
import type { PermissionRule, RuleEffect, RulePattern } from '../../../spec/permission-rule.ts';
import { fitsWildcards, type RuledDecision } from '../../../tools/decision-policy.ts';
import { collapseBlanks } from './collapse-blanks.ts';
import { fitsPath } from './path-pattern.ts';
import { resolvePath, type CommandPiece, type PermissionAction } from './permission-action.ts';

/** The part of a rule that determines whether it matches. */
type MatchingRule = RulePattern & {
  effect: RuleEffect;
  /** True for commands that fit the pattern, but that the rule does not match. */
  excepts?: (command: string) => boolean;
};

/** A rule that may apply to a call. */
export type AppliedRule = MatchingRule &
  Pick<PermissionRule, 'expires_at'> & {
    /** The rule is from the agent's spec. */
    isOfAgent: boolean;
  };

/**
 * How long matching may take for one call, in milliseconds of processor time: commands come from code, and rules from
 * users. Rules that are not reached in time count as possible matches, so that a person decides.
 */
const MAX_MATCHING_MS = 100;

/** Longer rules are compared as a whole: the wildcards of a script are part of it. */
const MAX_PATTERN_LENGTH = 500;

/** For a longer command, rules that ask or deny make a person decide; a rule with wildcards never allows it. */
const MAX_COMMAND_LENGTH = 32_768;

/**
 * The decision of the matching rules on an action: `deny` before `ask` before `allow`, whatever their scope. Undefined
 * if none matches.
 * @param now milliseconds since 1970
 */
export function decisionByRules(
  action: PermissionAction,
  rules: readonly AppliedRule[],
  now: number,
): RuledDecision | undefined {
  const used = cpuStopwatch();
  const matching: Pick<AppliedRule, 'effect' | 'isOfAgent'>[] = [];
  for (const rule of rules) {
    if (used() > MAX_MATCHING_MS) {
      matching.push({ effect: 'ask', isOfAgent: false });
      break;
    }
    if (typeof rule.expires_at === 'string' && Date.parse(rule.expires_at) <= now) continue;
    if (matchesRule(rule, action)) matching.push(rule);
    else if (isLong(action) && rule.action === 'shell' && rule.effect !== 'allow') {
      matching.push({ effect: 'ask', isOfAgent: rule.isOfAgent });
    }
  }
  if (matching.length === 0) return undefined;
  const has = (effect: RuleEffect): boolean => matching.some((rule) => rule.effect === effect);
  const decision = has('deny') ? 'deny' : has('ask') ? 'ask' : 'allow';
  return { decision, isOfAgent: matching.some(({ isOfAgent }) => isOfAgent) };
}

function isLong(action: PermissionAction): boolean {
  return action.type === 'shell' && action.text.length > MAX_COMMAND_LENGTH;
}

/** Whether a rule matches an action. Rules that ask or deny also match actions that could be meant. */
export function matchesRule(rule: MatchingRule, action: PermissionAction): boolean {
  if (rule.action !== action.type) return false;
  if ('tool' in rule) return action.type === 'tool' && fitsWildcards(rule.tool, `${action.server}/${action.name}`);
  if ('path' in rule) return 'path' in action && matchesPath(rule, action.path);
  if (!('command' in rule)) return true;
  if (action.type !== 'shell') return false;
  return rule.effect === 'allow' ? allowsCommand(rule, action) : concernsCommand(rule.command, action);
}

function matchesPath({ path: pattern, effect }: { path: string; effect: RuleEffect }, path: string): boolean {
  const resolved = resolvePath(path);
  if (!resolved) return false;
  const isAbsolute = pattern.startsWith('/');
  if ('inside' in resolved) return !isAbsolute && fitsPath(pattern, resolved.inside);
  if (isAbsolute) return fitsPath(pattern, resolved.outside);
  // Without namespaces, the workspace also has its path on the host, to which rules that ask or deny apply, too.
  return effect !== 'allow' && fitsPath(`**/${pattern}`, resolved.outside.slice(1));
}

/** Whether a rule allows a piece. An opaque piece is allowed only by an equal pattern, or by `*`. */
function allowsCommand(
  { command: pattern, excepts }: { command: string; excepts?: MatchingRule['excepts'] },
  { text, isOpaque }: CommandPiece,
): boolean {
  if (pattern === '*' || pattern === text) return true;
  return !isOpaque && fitsCommand(pattern, text) && excepts?.(text) !== true;
}

/** Whether a rule that asks or denies fits a piece, or a command inside it, however the words are quoted. */
function concernsCommand(pattern: string, { text, commands }: CommandPiece): boolean {
  if (pattern === '*' || pattern === text) return true;
  return [text, ...commands].some((command) => {
    const unquoted = collapseBlanks(command).replaceAll(/["'\\]/g, '');
    return [command, unquoted, unquoted.replace(/^[^ ]*\//, '')].some((form) => fitsCommand(pattern, form));
  });
}

function fitsCommand(pattern: string, command: string): boolean {
  if (pattern.length > MAX_PATTERN_LENGTH || command.length > MAX_COMMAND_LENGTH) return pattern === command;
  return fitsWildcards(collapseBlanks(pattern), collapseBlanks(command));
}
