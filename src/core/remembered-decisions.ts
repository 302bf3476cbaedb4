import { namesDeciders } from './input-rules.ts';
import type { Call } from './call.ts';
import type { ToolCall } from './records/calls.ts';
import type { Subject } from './subject.ts';

/**
 * How the later calls of a tool are decided, of all threads of the turn, which need an approval by the same policy; and who
 * has said so.
 */
export interface RememberedDecision {
  status: 'allow' | 'deny';
  reason?: string;
  by: Subject;
}

/**
 * Equal for calls that the same decision holds for: those of the same tool about which the same policy asks, or none.
 * Undefined if none is remembered for the call: its policy says who decides each call.
 */
export function ruleFor(
  { info }: Pick<ToolCall, 'info'>,
  { needs, policy }: Pick<Call, 'needs' | 'policy'>,
): string | undefined {
  if (info.type !== 'mcp' || needs !== 'approval' || namesDeciders(policy)) return undefined;
  if (policy && policy.id === undefined) return undefined;
  return JSON.stringify([info.serverId, info.name, policy?.id ?? null]);
}
