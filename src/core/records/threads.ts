import type { RecordBase } from './base.ts';
import type { AsDraft, CallSource } from './calls.ts';
import type { ModelMessage } from './message.ts';
import type { PendingCall } from './pending.ts';
import type { FoundTool, StatefulConnection } from './results.ts';
import type { Usage } from './usage.ts';

/** The thread of the root agent; sub-agents get threads of their own. */
export const ROOT_THREAD = 'main';

/**
 * The thread of a sub-agent, or of code that has made calls, and all that is needed to run it: in this Temporal run of
 * the turn, in the next, in a later turn.
 */
export interface SubAgent extends AsDraft {
  threadId: string;
  /** Set if code writes its messages: the calls of the cell that is its parent. `source` is that of the cell. */
  code?: { source: CallSource };
  /** The name that its parent has chosen. */
  title: string;
  /** The call whose result it produces. */
  parent: Pick<PendingCall, 'threadId' | 'toolCallId'>;
  /** 1 for a sub-agent of the root agent, 2 for one of its sub-agents. */
  depth: number;
  specHash: string;
  /** The name of the registered agent that it is. Absent: it is dynamic, and has the tools of its parent. */
  agent?: string;
  /** The spec is that of a registered agent, with whose rights it runs, also in the session of a draft. */
  isRegistered?: true;
  /** Set for a dynamic sub-agent whose model is not its parent's. */
  model?: string;
  hasServers: boolean;
  /** The limit of its model calls. */
  iterations: number;
  /**
   * An agent that acts in code has started it. It starts no sub-agents, and ends with its last message, after the tools
   * of its last model call.
   */
  isTask?: true;
  /** How many tasks that it has started may be open at once. Absent if it does not act in code: it has no kernel. */
  maxTasks?: number;
  /** It ends with its last message once a person has denied one of its calls. */
  endsOnDenial?: true;
}

/** Why a thread ends with its last message, without another model call. */
export type ThreadEnding = 'denial' | 'max_turns';

/** A sub-agent that is not done. */
export interface OpenThread extends SubAgent {
  /** Its model calls so far. */
  steps: number;
  /** How many of these have found that a sign-in is missing. */
  refused?: number;
  isDenied?: true;
}

export interface ThreadCreated extends RecordBase {
  kind: 'thread.created';
  thread: SubAgent;
  /** The sub-agent's task, with which its conversation begins. */
  input: string;
}

export interface ThreadDone extends RecordBase {
  kind: 'thread.done';
  threadId: string;
  title: string;
  parent: SubAgent['parent'];
  end: { status: 'done' } | { status: 'error'; message: string };
  /** The last message of a thread that is done; `Turn` adds it, unless others came after it. */
  output?: ModelMessage;
}

/**
 * The conversation of a thread was compacted: its later model calls get less of what came before. The log keeps all of
 * it.
 */
export interface ContextCompacted extends RecordBase {
  kind: 'context.compacted';
  threadId: string;
  /** The ordinal in this turn up to which the thread's records are replaced, with those of the previous turns. */
  through: number;
  /** What replaces them. Absent: only the results of their tool calls are cleared. */
  summary?: string;
  /** The input of the next model call before and after it, as far as it can be estimated. */
  tokensBefore: number;
  tokensAfter: number;
  /** The tools that the thread has found so far. */
  foundTools?: FoundTool[];
  /** The connections on which the thread's last call of each server ran. */
  connections?: StatefulConnection[];
  /** The usage of the model calls that wrote the summary. */
  usage?: Usage;
  /** Every client gets the event: the clients of an agent whose turns wait support it. */
  isShown?: true;
}
