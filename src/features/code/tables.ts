import type { Generated } from 'kysely';
import type { Isolation } from '../../core/records/sandbox.ts';
import type { RuleScope } from './permissions/rule-rows.ts';
import type { Prepared } from './prepared.ts';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /** The sandboxes of sessions, with their hosts and the files of their workspaces. */
    sandboxes: {
      session_id: string;
      id: string;
      /** Its kernel host: the task queue of that process alone. */
      host: string;
      isolation: Isolation;
      /**
       * The activity that has created it, all attempts of which return the event of the creation. Empty, like the host,
       * if only a client has written files so far.
       */
      opened_by: string;
      /** The files of the workspace, stored by `WorkspaceState`; null before the end of the first call. */
      workspace: string | null;
      /** The number of running calls on the host; without meaning if the host is lost. */
      calls: Generated<number>;
      /** The kernels on the host, a list of `KernelState`s as JSON. */
      kernels: string | null;
      /** The pending resets of kernels, as JSON: see `KernelReset`. */
      resets: string | null;
      /** The ids of the last resets, as a list in JSON. */
      reset_ids: string | null;
      /** The stored variables of its kernels, a list of `KernelSnapshot`s as JSON; null before any are stored. */
      snapshots: string | null;
      created_at: string;
    };
    /** The kernel hosts that run, or ran recently. */
    kernel_hosts: {
      host: string;
      state: KernelHostState;
      /** The reason why it cannot start kernels. */
      reason: string | null;
      /** The wall around its kernels, once it is known. */
      isolation: Isolation | null;
      kernels: number;
      capacity: number;
      /** The last heartbeat: the host is lost if it is older than `HOST_LOST_MS`. */
      seen_at: string;
    };
    /** The rules of users for the actions of agents in code. */
    permission_rules: {
      id: string;
      scope: RuleScope;
      /** The key of its `RuleTarget`. */
      place: string;
      /** Null for a rule that applies to all sessions of its subject with the agent. */
      session_id: string | null;
      /** The agent of such a rule. */
      agent_name: string | null;
      /** Equal for equal rules. */
      hash: string;
      /** The rule, with its author. */
      rule: string;
      created_at: string;
      expires_at: string | null;
    };
    /** The tools that agents and clients have saved. */
    saved_code_tools: {
      id: string;
      /** The key of its `SavedToolOwner`. */
      place: string;
      agent_name: string;
      category: string;
      name: string;
      version: number;
      /** Equal for equal tools. */
      hash: string;
      /** Its fields in lists, and the author of this version. */
      about: string;
      /** Its sources. */
      code: string;
      /** The requests that have saved the last versions, as a list in JSON. */
      saved_by: string;
      /** The time at which its first version was saved. */
      created_at: string;
      updated_at: string;
    };
  }
}

/** `building`: its Python environment is being built. `draining`: it is stopping, and starts no kernels. */
export type KernelHostState = Prepared<object>['state'] | 'draining';
