import { namesDeciders } from './input-rules.ts';
import type { Call } from './call.ts';
import type { ToolCall } from './records/calls.ts';
import type { Subject } from './subject.ts';

/** How the calls of a tool are decided from now on, and who has said so. */
interface RememberedDecision {
  status: 'allow' | 'deny';
  reason?: string;
  by: Subject;
}

/** What a run of a turn passes on when it continues as new. */
type State = [rule: string, decision: RememberedDecision][];

/**
 * The decisions on tool calls that hold for later calls of the turn: those of the same tool, in all threads, which need
 * an approval by the same policy. A part of `TurnActions`.
 */
export class RememberedDecisions {
  readonly #decisions: Map<string, RememberedDecision>;

  constructor(state: State = []) {
    this.#decisions = new Map(state);
  }

  get state(): State {
    return [...this.#decisions];
  }

  add(rule: string, decision: RememberedDecision): void {
    this.#decisions.set(rule, decision);
  }

  find(rule: string | undefined): RememberedDecision | undefined {
    return rule === undefined ? undefined : this.#decisions.get(rule);
  }
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
