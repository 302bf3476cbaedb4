import type { GivenResult } from '../core/given-conversation.ts';
import type { ToolCallText } from '../core/message.ts';
import type { ModelCall } from '../core/model-call.ts';
import type { AsDraft, ToolCall, ToolRoute } from '../core/records/calls.ts';
import type { NoResult, ToolOutcome } from '../core/records/results.ts';
import type { SubAgent } from '../core/records/threads.ts';
import type { TranscriptItem } from '../core/transcript.ts';
import type { CallOutcome } from '../mcp/call-outcome.ts';
import type { OfferedTool } from '../models/provider.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import type { TextSources } from './read-tool-response.ts';
import type { RunOptions } from './tool-kind.ts';
import type { ServerRun } from './toolset.ts';

/**
 * A tool of the server: what it offers to an agent, and how a call of it is handled. `Services` is what it is routed or
 * run with. Features name theirs in their `feature.ts`.
 */
export type SystemTool<Services = unknown> = {
  name: string;
  /** The tool as a model gets it; undefined if the agent does not have it. */
  offer: (spec: AgentSpec) => Omit<OfferedTool, 'name'> | undefined;
} & ({ answeredBy: 'client' } | RoutedTool<Services> | RunTool<Services> | SandboxTool);

/** The activity that receives a call executes it, or passes it to another agent. */
interface RoutedTool<Services> {
  /** Whether a thread can use the tool now. */
  isOffered: (user: ToolUser) => boolean;
  route: (call: RoutableCall, services: Services) => Promise<RoutedCall> | RoutedCall;
  /** For agents whose calls of the tool need a decision: see `decision` of `SandboxTool`. */
  decision?: (spec: AgentSpec) => SpecDecision | undefined;
}

/** Each call is an activity of its own. */
interface RunTool<Services> {
  effect: ServerRun['effect'];
  run: (call: ToolCall, options: RunOptions, services: Services) => Promise<CallOutcome>;
}

/** Each call is an activity on the kernel host that has the sandbox of the session: see `activities/call-in-sandbox.ts`. */
interface SandboxTool {
  inSandbox: Pick<ServerRun, 'effect' | 'order'>;
  /** Whether calls need an approval, and whether they run at all. */
  decision: (spec: AgentSpec) => SpecDecision;
}

type SpecDecision = 'allow' | 'ask' | 'deny';

/** A thread that is offered tools. */
export interface ToolUser extends Pick<ModelCall, 'mayStart' | 'subAgent'> {
  /** Its model sees results or files only in part. */
  seesPart: boolean;
}

/** A call of a complete message, whose arguments fit. */
export interface RoutableCall extends TextSources {
  call: ToolCallText;
  args: Record<string, unknown>;
  /** The position of the call in its message. */
  index: number;
  /** How the calls before it were routed. */
  earlier: readonly RoutedCall[];
  /** Set for a call of a client: see `AsDraft`. */
  asDraft: AsDraft | undefined;
  /** The model call that returned the message. */
  modelCall: ModelCall;
  conversation: readonly TranscriptItem[];
  signal: AbortSignal;
}

/** How a call is handled. */
export interface RoutedCall {
  route: ToolRoute;
  /** Why the call cannot run. */
  problem?: string;
  /** The result of a call that was executed while it was routed. */
  content?: string;
  /** Default: succeeded, or failed if there is a problem. */
  outcome?: ToolOutcome;
  noResult?: NoResult;
  /** The result that the client has given with its conversation. */
  given?: GivenResult;
  /** The sub-agent that the call starts. */
  started?: { thread: SubAgent; input: string };
}

/** How many agents the calls of a message have started. */
export function startedAgents(calls: readonly RoutedCall[]): number {
  return calls.filter(({ route }) => route.to === 'thread' || route.to === 'session' || 'startsTask' in route).length;
}
