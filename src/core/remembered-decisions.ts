import { namesDeciders } from './input-rules.ts';
import type { Call } from './call.ts';
import type { ToolCall } from './records/calls.ts';
import type { Subject } from './subject.ts';

/**
 * The decision on the later calls of a tool, in all threads of the turn, that need an approval by the same policy; and
 * its author.
 */
export interface RememberedDecision {
  status: 'allow' | 'deny';
  reason?: string;
  by: Subject;
}

/**
 * Equal for calls that the same decision holds for: calls of the same tool with the same policy, or with none.
 * Undefined if no decision is remembered for the call: its policy names who decides each call.
 */
export function ruleFor(
  { info }: Pick<ToolCall, 'info'>,
  { needs, policy }: Pick<Call, 'needs' | 'policy'>,
): string | undefined {
  if (info.type !== 'mcp' || needs !== 'approval' || namesDeciders(policy)) return undefined;
  if (policy && policy.id === undefined) return undefined;
  return JSON.stringify([info.serverId, info.name, policy?.id ?? null]);
}
