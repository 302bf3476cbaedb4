import { z } from 'zod';
import { bounded } from './bounds.ts';
import { MAX_PATH_BYTES, WORKSPACE } from './workspace-path.ts';

/** Rules on what agents that act in code may do (`docs/code-actions.md`, "Rules"). */

export const RULE_EFFECTS = ['allow', 'ask', 'deny'] as const;

export type RuleEffect = (typeof RULE_EFFECTS)[number];

/** What rules decide on. A script is decided on as `shell`. */
export const RULE_ACTIONS = [
  'code',
  'shell',
  'tool',
  'file_read',
  'file_write',
  'file_edit',
  'reset',
  'task',
  'save_tool',
] as const;

/** A script is a rule of its own. */
const MAX_COMMAND_LENGTH = 65_536;
const MAX_TOOL_LENGTH = 512;

const text = (max: number) => z.string().min(1).max(max);

const ofActions = { action: z.enum(['code', 'reset', 'task', 'save_tool']) };

const ofCommands = {
  action: z.literal('shell'),
  command: text(MAX_COMMAND_LENGTH).describe('`*` matches any characters, `?` one'),
};

const ofFiles = {
  action: z.enum(['file_read', 'file_write', 'file_edit']),
  path: text(MAX_PATH_BYTES).describe(
    '`*` and `?` match within one folder, `**` across folders; a relative path is below the workspace, an absolute one outside',
  ),
};

const ofTools = {
  action: z.literal('tool'),
  tool: text(MAX_TOOL_LENGTH).describe('`<server>/<tool>`; `*` matches any characters, `?` one'),
};

/** Unknown keys are rejected: a typo must not be ignored. */
function withFields<Fields extends z.ZodRawShape>(fields: Fields) {
  return z.discriminatedUnion('action', [
    z.strictObject({ ...fields, ...ofActions }),
    z.strictObject({ ...fields, ...ofCommands }),
    z.strictObject({ ...fields, ...ofFiles }),
    z.strictObject({ ...fields, ...ofTools }),
  ]);
}

/** What a rule applies to. */
export const rulePattern = withFields({}).meta({ id: 'PermissionPattern' });

export const permissionRule = withFields({
  effect: z
    .enum(RULE_EFFECTS)
    .describe('of all rules that match, `deny` takes precedence over `ask`, that over `allow`'),
  expires_at: z.iso.datetime({ precision: 3 }).nullish().describe('from then on it does not count'),
}).meta({ id: 'PermissionRule' });

export type RulePattern = z.infer<typeof rulePattern>;
export type PermissionRule = z.infer<typeof permissionRule>;

/** How many rules an agent may have, and so may a session, and a subject for an agent. */
export const MAX_RULES = 500;

/** The rules of an agent. */
export const permissions = bounded(
  z.array(
    z.union([permissionRule, z.strictObject({ preset: z.literal('read_only').describe('commands that only read') })]),
  ),
  MAX_RULES,
);

/** Why a rule can never match, or is not what it looks like; undefined if there is no such reason. */
export function ruleProblem(rule: RulePattern): string | undefined {
  if (rule.action === 'tool') return /[/*]/.test(rule.tool) ? undefined : 'tool must be <server>/<tool>';
  if (!('path' in rule)) return undefined;
  const { path } = rule;
  if (path.startsWith('~')) return 'path must not begin with ~: that folder is outside of the sandbox';
  const names = path.split('/').slice(path.startsWith('/') ? 1 : 0);
  if (names.some((name) => ['', '.', '..'].includes(name))) return 'path must have no empty name, and no . or ..';
  if (names.some((name) => name !== '**' && name.includes('**'))) return 'in path, ** must stand between slashes';
  if (path === WORKSPACE || path.startsWith(`${WORKSPACE}/`)) {
    return `path must be relative: an absolute one is outside of ${WORKSPACE}`;
  }
  return undefined;
}
