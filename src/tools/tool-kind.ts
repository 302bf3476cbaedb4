import type { ToolScope } from '../core/history.ts';
import type { ToolCall, ToolInfo } from '../core/records/calls.ts';
import type { CallOutcome } from '../mcp/call-outcome.ts';
import type { AskingCall, ResumedCall } from '../mcp/call-rounds.ts';
import type { CallOptions } from '../mcp/connection.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import type { AgentTool, Toolset } from './toolset.ts';

/**
 * A kind of tool: where the tools of one `ToolInfo.type` come from, and how the server runs a call of one. To add a
 * kind, follow the recipe in CONTRIBUTING.md.
 */
export interface ToolKind {
  readonly type: ToolInfo['type'];
  /** The agent's tools of this kind. Unreachable servers are part of the result; throws only if `signal` is aborted. */
  tools(spec: AgentSpec, scope: ToolScope, signal: AbortSignal): Promise<KindTools>;
  /**
   * Runs a call of a tool of this kind until it has ended, or asks the user. Checks the operator's policy again,
   * because it may have changed while the call waited for its approval.
   * @throws only before the call was sent: an Error that says why it may not or cannot run, or the signal's reason
   */
  run(call: ToolCall, options: RunOptions): Promise<CallOutcome | AskingCall>;
}

/** The kind for each `ToolInfo.type`. If two kinds claim the same name for a tool, the earlier one keeps it. */
export type ToolKinds = Readonly<Record<ToolInfo['type'], ToolKind>>;

/** What one kind contributes to a toolset. */
export interface KindTools extends Pick<Toolset, 'servers' | 'unavailable' | 'instructions'> {
  /** The tools under the names by which the model calls them. `taken` holds the names of the kinds before this one. */
  named: (taken: ReadonlySet<string>) => AgentTool[];
}

export interface RunOptions extends Pick<CallOptions, 'reliesOn'> {
  spec: AgentSpec;
  scope: ToolScope;
  /** Identical for every attempt at a call, so that the tool can recognize a repetition. */
  operationId: string;
  timeoutMs: number;
  signal: AbortSignal;
  /** Whether the tool allows that the call runs again. */
  mayRepeat: boolean;
  /** Set if the call continues with an answer of the user. */
  resumed?: ResumedCall | undefined;
  /** Loads the agent's tools of all kinds, for a tool that reads them. */
  loadToolset: () => Promise<Toolset>;
}
