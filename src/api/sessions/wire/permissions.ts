import { z } from 'zod';
import type { StoredRule } from '../../../features/code/permissions/rule-rows.ts';
import { RULE_ACTIONS, RULE_EFFECTS } from '../../../spec/permission-rule.ts';
import { rowToWire } from '../../http/wire-fields.ts';
import { timestamp } from './event.ts';
import { subject, subjectToWire } from './subject.ts';

/** A rule that a user has made on what agents may do in code (`docs/code-actions.md`, "Rules"). */
export const ruleResource = z
  .object({
    id: z.string(),
    scope: z.enum(['cell', 'session', 'always']),
    effect: z.enum(RULE_EFFECTS),
    action: z.enum(RULE_ACTIONS),
    tool: z.string().optional(),
    command: z.string().optional(),
    path: z.string().optional(),
    created_at: timestamp,
    created_by: subject,
    expires_at: timestamp.optional(),
  })
  .meta({ id: 'Rule' });

export type RuleResource = z.infer<typeof ruleResource>;

export function ruleToResource({ id, scope, rule, createdAt, createdBy }: StoredRule): RuleResource {
  return rowToWire(ruleResource, {
    id,
    scope,
    ...rule,
    created_at: createdAt,
    created_by: subjectToWire(createdBy),
    expires_at: rule.expires_at ?? undefined,
  });
}
