import { mapValues } from '../lib/map-values.ts';
import type { AgentSpec } from './agent-spec.ts';
import {
  CODE_ACTIONS,
  INSTRUCTIONS_FILE,
  KERNEL_LIMITS,
  OUTPUT_BYTES,
  RESULT_LIMITS,
  TASK_LIMITS,
  WORKSPACE_LIMITS,
  type WorkspaceFileSpec,
} from './code-actions-spec.ts';
import { parseDataUri } from './data-uri.ts';
import type { PermissionRule } from './permission-rule.ts';
import { workspacePath } from './workspace-path.ts';

export type CodeAction = keyof typeof CODE_ACTIONS;

type Approval = 'allow' | 'ask' | 'deny';

/** Limits of one kernel with its child processes, by their names in the agent format, for which operators set maxima. */
export type KernelLimits = Record<keyof typeof KERNEL_LIMITS, number>;

/** The block `code_actions` of an agent that acts in code, with all defaults. */
export interface CodeActions {
  /** Whether a person decides before each action. */
  approvals: Record<CodeAction, Approval>;
  permissions: (PermissionRule | { preset: 'read_only' })[];
  /** A turn ends once a person has denied a call. */
  endsOnDenial: boolean;
  /** How long calls of code wait for a decision; undefined: without a limit. */
  approvalTimeoutSeconds: number | undefined;
  /**
   * `timeout_seconds`: of a cell, without the time for which it waits for people. `idle_seconds`: after which an unused
   * kernel is stopped. `suspend_seconds`: for which one is kept whose cell waits for a decision. `memory_mb`: in MiB.
   * `cpus`: may be a fraction. `processes`: threads count. `output_bytes`: of one cell. `env`: the environment of code and
   * commands; values may refer to variables of the kernel host. `state`: whether variables are stored after each cell that
   * succeeds, so that the next kernel has them.
   */
  kernel: KernelLimits & { output_bytes: number; env: Record<string, string>; state: 'memory' | 'snapshot' };
  /** `allow`: patterns of the hosts that code and commands may reach, in lower case. */
  network: { allow: string[] };
  workspace: {
    max_bytes: number;
    max_files: number;
    /** Their paths are relative to the workspace and differ. */
    files: { path: string; base64: string }[];
    /** The path of a file with instructions, relative to the workspace; null: none. */
    instructions_file: string | null;
  };
  /** A result of more than `inline_bytes` is a file; the model gets `preview_chars` characters of its head and tail. */
  results: { inline_bytes: number; preview_chars: number };
  /** Whether the model sees the images that code displays, or gets links to them. */
  images: 'link' | 'show';
  /** `max_concurrent`: how many are begun and not done. `max_turns`: after how many model calls with their tools one ends. */
  sub_tasks: { max_concurrent: number; max_turns: number };
  /** The saved tools that the code has: those of the session's owner for the agent, those of the agent, or none. */
  savedTools: 'subject' | 'agent' | 'none';
  /** Whether a search ranks tools by words, or also by meaning. */
  toolSearch: 'keyword' | 'hybrid';
}

/** The code actions of an agent; undefined if it does not act in code. */
export function codeActionsOf(spec: Pick<AgentSpec, 'code_actions' | 'config'>): CodeActions | undefined {
  const block = blockOf(spec);
  if (!block) return undefined;
  const { approvals, permissions, on_deny: onDeny, kernel, network, workspace, results, images } = block;
  const { approval_timeout_seconds: approvalTimeoutSeconds, sub_tasks: tasks } = block;
  return {
    approvals: approvalsOf(approvals),
    permissions: permissions ?? [],
    endsOnDenial: onDeny === 'end',
    approvalTimeoutSeconds: approvalTimeoutSeconds ?? undefined,
    kernel: {
      ...withDefaults(KERNEL_LIMITS, kernel),
      output_bytes: kernel?.output_bytes ?? OUTPUT_BYTES.default,
      env: kernel?.env ?? {},
      state: kernel?.state ?? 'memory',
    },
    network: { allow: (network?.allow ?? []).map((pattern) => pattern.toLowerCase()) },
    workspace: {
      ...withDefaults(WORKSPACE_LIMITS, workspace),
      files: (workspace?.files ?? []).flatMap(workspaceFile),
      instructions_file: instructionsFile(workspace?.instructions_file),
    },
    results: withDefaults(RESULT_LIMITS, results),
    images: images ?? 'link',
    sub_tasks: withDefaults(TASK_LIMITS, tasks),
    savedTools: block.saved_tools ?? 'subject',
    toolSearch: block.tool_search ?? 'keyword',
  };
}

/** Whether an agent that acts in code has a person decide before each call of a tool that is not a system tool. */
export function asksForTools(spec: Pick<AgentSpec, 'code_actions' | 'config'>): boolean {
  const approvals = blockOf(spec)?.approvals;
  return typeof approvals === 'object' && approvals?.tool === 'ask';
}

function blockOf({ code_actions: given, config }: Pick<AgentSpec, 'code_actions' | 'config'>) {
  const sandbox = config?.sandbox?.enabled;
  const block = given ?? (sandbox === true ? { approvals: 'allow' as const } : undefined);
  return block?.enabled === false || sandbox === false ? undefined : block;
}

/** The limits that a block gives, and the defaults of the others. */
function withDefaults<Limit extends string>(
  ranges: Readonly<Record<Limit, { default: number }>>,
  given: { [limit in NoInfer<Limit>]?: number | null | undefined } | null | undefined,
): Record<Limit, number> {
  return mapValues(ranges, (range, limit) => given?.[limit] ?? range.default);
}

function approvalsOf(given: NonNullable<AgentSpec['code_actions']>['approvals']): CodeActions['approvals'] {
  return mapValues<CodeAction, Approval, Approval>(CODE_ACTIONS, (initial, action) =>
    typeof given === 'string' ? given : (given?.[action] ?? initial),
  );
}

/** Null for what is rejected when the agent is checked, so that no path leaves the workspace. */
function instructionsFile(given: string | null = INSTRUCTIONS_FILE): string | null {
  return given === null ? null : (workspacePath(given) ?? null);
}

/** Empty for what the schema rejects, so that no path leaves the workspace. */
function workspaceFile({ path: given, data }: WorkspaceFileSpec): CodeActions['workspace']['files'] {
  const path = workspacePath(given);
  const content = parseDataUri(data);
  return path === undefined || content === undefined ? [] : [{ path, base64: content.base64 }];
}

/**
 * Limits of a kernel, lowered to the operator's maxima: those may be less than what agents have by default, or less than
 * when the agent was accepted.
 */
export function atMost(limits: CodeActions['kernel'], maxima: KernelLimits): CodeActions['kernel'] {
  return { ...limits, ...mapValues(maxima, (maximum, limit) => Math.min(limits[limit], maximum)) };
}
