import type { Generated } from 'kysely';
import type { Isolation } from '../../core/records/sandbox.ts';
import type { RuleScope } from './permissions/rule-rows.ts';
import type { Prepared } from './prepared.ts';

declare module '../../catalog/schema.ts' {
  interface Tables {
    /** The sandboxes of sessions: where each is, and what its workspace has. */
    sandboxes: {
      session_id: string;
      id: string;
      /** The kernel host that has it: the task queue of that process alone. */
      host: string;
      isolation: Isolation;
      /**
       * The activity that has created it: each attempt at that returns the event of the creation. Empty, as is the host, if
       * only a client has written files yet.
       */
      opened_by: string;
      /** The files of the workspace, as `WorkspaceState` keeps them; null before the first call has ended. */
      workspace: string | null;
      /** How many calls run on the host; what is left of a lost host does not count. */
      calls: Generated<number>;
      /** The kernels on the host, a list of `KernelState`s as JSON. */
      kernels: string | null;
      /** What clients have had reset, as JSON, until the host has done it: see `KernelReset`. */
      resets: string | null;
      /** The ids of the last resets, as a list in JSON. */
      reset_ids: string | null;
      /** The stored variables of its kernels, a list of `KernelSnapshot`s as JSON; null before any are stored. */
      snapshots: string | null;
      created_at: string;
    };
    /** The kernel hosts that run, or have run lately. */
    kernel_hosts: {
      host: string;
      state: KernelHostState;
      /** Why it cannot start kernels. */
      reason: string | null;
      /** The wall around its kernels, once it is known. */
      isolation: Isolation | null;
      kernels: number;
      capacity: number;
      /** It is lost if that is longer ago than `HOST_LOST_MS`. */
      seen_at: string;
    };
    /** The rules that users have made on what agents may do in code. */
    permission_rules: {
      id: string;
      scope: RuleScope;
      /** Where it counts: see `RuleTarget`. */
      place: string;
      /** Null for one that counts in all sessions of its subject with the agent. */
      session_id: string | null;
      /** The agent of such a rule. */
      agent_name: string | null;
      /** Equal for equal rules. */
      hash: string;
      /** The rule, with the subject that has made it. */
      rule: string;
      created_at: string;
      expires_at: string | null;
    };
    /** The tools that agents and clients have saved. */
    saved_code_tools: {
      id: string;
      /** Whose they are: see `SavedToolOwner`. */
      place: string;
      agent_name: string;
      category: string;
      name: string;
      version: number;
      /** Equal for equal tools. */
      hash: string;
      /** What lists say of it, and the subject that has saved this version. */
      about: string;
      /** Its sources. */
      code: string;
      /** The requests that have saved the last versions, as a list in JSON. */
      saved_by: string;
      /** When its first version was saved. */
      created_at: string;
      updated_at: string;
    };
  }
}

/** `building`: it gets its environment of Python. `draining`: it stops, and starts no kernels. */
export type KernelHostState = Prepared<object>['state'] | 'draining';
