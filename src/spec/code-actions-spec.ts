import { z } from 'zod';
import { bounded } from './bounds.ts';
import { BASE64, DATA_URI_HEAD, parseDataUri } from './data-uri.ts';
import { HOST_PATTERN, HOST_PATTERN_RULE, MAX_HOST_LENGTH } from './host-pattern.ts';
import { permissions } from './permission-rule.ts';
import { WORKSPACE_PATH_RULE } from './workspace-path.ts';

/** What an agent does in code for which it may need approval, with the default for each. */
export const CODE_ACTIONS = {
  code: 'ask',
  shell: 'ask',
  reset: 'ask',
  file_read: 'allow',
  file_write: 'ask',
  file_edit: 'ask',
  task: 'ask',
  save_tool: 'ask',
} as const;

/**
 * The limits of one kernel with its child processes: the values that an agent may have, the default, and the operator's
 * maximum, unless that is set. MB are MiB.
 */
export const KERNEL_LIMITS = {
  timeout_seconds: { min: 1, max: 86_400, default: 300, maximum: 3_600 },
  idle_seconds: { min: 60, max: 604_800, default: 1_800, maximum: 86_400 },
  suspend_seconds: { min: 60, max: 2_592_000, default: 86_400, maximum: 604_800 },
  memory_mb: { min: 128, max: 1_048_576, default: 1_024, maximum: 4_096 },
  cpus: { min: 0.1, max: 1_024, default: 1, maximum: 2 },
  processes: { min: 16, max: 65_536, default: 128, maximum: 512 },
} as const;

const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;

/** The limits for which operators have no setting. */
export const OUTPUT_BYTES = { min: KIB, max: 64 * MIB, default: 16 * MIB } as const;
export const WORKSPACE_LIMITS = {
  max_bytes: { min: 1, max: 1024 * GIB, default: GIB },
  max_files: { min: 1, max: 1_000_000, default: 10_000 },
} as const;
export const RESULT_LIMITS = {
  inline_bytes: { min: KIB, max: 256 * KIB, default: 32 * KIB },
  preview_chars: { min: 0, max: 65_536, default: 2_048 },
} as const;

/** The sub-tasks of a thread that are begun and not done, and the model calls of each. */
export const TASK_LIMITS = {
  max_concurrent: { min: 1, max: 20, default: 5 },
  max_turns: { min: 1, max: 10_000, default: 100 },
} as const;

/** How long a decision inside code may take: at most 30 days. */
const APPROVAL_TIMEOUT_SECONDS = { min: 1, max: 2_592_000 } as const;

/** The usual name of the file with a project's instructions for agents. */
export const INSTRUCTIONS_FILE = 'AGENTS.md';

interface Range {
  min: number;
  max: number;
  default: number;
}

function whole({ min, max, default: initial }: Range, description: string) {
  return z.int().min(min).max(max).nullish().describe(`${description}; default ${initial}`);
}

/** Files of an agent are stored with each of its versions. */
const MAX_FILES = 100;
const MAX_DATA_LENGTH = 4_000_000;

const MAX_VARIABLES = 100;

const MAX_HOSTS = 100;

const decision = z.enum(['allow', 'ask', 'deny']);

const approvals = z.union([
  decision,
  z.strictObject({
    code: decision.nullish().describe('calls of ipython; default ask'),
    shell: decision.nullish().describe('commands; default ask'),
    tool: z
      .literal('ask')
      .nullish()
      .describe('all tools of MCP servers, as `require_approval_for_tools: ["@all"]` of each; default: as each says'),
    reset: decision.nullish().describe('calls of ipython_reset; default ask'),
    file_read: decision.nullish().describe('default allow'),
    file_write: decision.nullish().describe('default ask'),
    file_edit: decision.nullish().describe('default ask'),
    task: decision.nullish().describe('calls of create_sub_agent; default ask'),
    save_tool: decision.nullish().describe('calls of save_code_tool and delete_code_tool; default ask'),
  }),
]);

const workspaceFile = z.strictObject({
  path: z.string().describe(WORKSPACE_PATH_RULE),
  data: z
    .string()
    .max(MAX_DATA_LENGTH)
    .refine((data) => parseDataUri(data) !== undefined, { error: 'must be data:<mime type>;base64,<payload>' })
    .meta({ description: 'data:<mime>;base64,<payload>', override: { pattern: `${DATA_URI_HEAD}${BASE64}$` } }),
});

/** The block `code_actions` of an agent. */
export const codeActionsSpec = z
  .strictObject({
    enabled: z.boolean().nullish().describe('default true'),
    approvals: approvals
      .nullish()
      .describe('whether a person decides first: a word for all actions but tools of MCP servers, or one for each'),
    permissions: permissions.nullish().describe('rules that say otherwise for what they match'),
    on_deny: z
      .enum(['tell', 'end'])
      .nullish()
      .describe('tell (default): the model is told that a call was denied, and continues; end: the turn ends'),
    approval_timeout_seconds: z
      .int()
      .min(APPROVAL_TIMEOUT_SECONDS.min)
      .max(APPROVAL_TIMEOUT_SECONDS.max)
      .nullish()
      .describe('how long calls of code wait for a decision; then they end as expired; default: without a limit'),
    kernel: z
      .strictObject({
        timeout_seconds: whole(KERNEL_LIMITS.timeout_seconds, 'how long a cell may run, without waiting for people'),
        idle_seconds: whole(KERNEL_LIMITS.idle_seconds, 'after how long an unused kernel is stopped'),
        suspend_seconds: whole(
          KERNEL_LIMITS.suspend_seconds,
          'how long a kernel is kept for a cell that waits for a decision',
        ),
        memory_mb: whole(KERNEL_LIMITS.memory_mb, 'in MiB, of a kernel and its child processes'),
        cpus: z
          .number()
          .min(KERNEL_LIMITS.cpus.min)
          .max(KERNEL_LIMITS.cpus.max)
          .nullish()
          .describe(`default ${KERNEL_LIMITS.cpus.default}`),
        processes: whole(KERNEL_LIMITS.processes, 'of a kernel, threads included'),
        output_bytes: whole(OUTPUT_BYTES, 'of one cell; what exceeds it is counted and discarded'),
        env: bounded(z.record(z.string().regex(/^[A-Za-z_]\w{0,127}$/), z.string().max(4_096)), MAX_VARIABLES)
          .nullish()
          .describe(
            'variables of the environment of code and commands; `${NAME}` is the value of a variable of the kernel host that ' +
              'its operator has listed, which is hidden in results and calls',
          ),
        state: z
          .enum(['memory', 'snapshot'])
          .nullish()
          .describe(
            'memory (default): variables are lost with their kernel; snapshot: those that can be pickled are stored after ' +
              'each call that succeeds, up to 256 MiB and 10 s in all, and the next kernel begins with them',
          ),
      })
      .nullish()
      .describe('what a kernel has, its limits up to the maximum that the operator has set'),
    network: z
      .strictObject({
        allow: bounded(z.array(z.string().max(MAX_HOST_LENGTH).regex(HOST_PATTERN, HOST_PATTERN_RULE)), MAX_HOSTS)
          .nullish()
          .describe(
            'the hosts that code and commands may reach, on port 80 by http and on port 443, through a proxy: names, or ' +
              '`*.example.com` for all below one; default none',
          ),
      })
      .nullish()
      .describe('what code may reach of the network, up to the maximum that the operator has set'),
    workspace: z
      .strictObject({
        files: bounded(z.array(workspaceFile), MAX_FILES)
          .nullish()
          .describe('written when the first code of a session runs'),
        max_bytes: whole(WORKSPACE_LIMITS.max_bytes, 'of all files'),
        max_files: whole(WORKSPACE_LIMITS.max_files, 'how many files'),
        instructions_file: z
          .string()
          .nullish()
          .describe(`a file whose text is part of the prompt of each turn; default ${INSTRUCTIONS_FILE}, null: none`),
      })
      .nullish()
      .describe('the folder /workspace of a session'),
    results: z
      .strictObject({
        inline_bytes: whole(
          RESULT_LIMITS.inline_bytes,
          'a longer result is a file, of which the model gets head and tail',
        ),
        preview_chars: whole(RESULT_LIMITS.preview_chars, 'the length of head and of tail'),
      })
      .nullish()
      .describe('what the model gets of long results'),
    images: z
      .enum(['link', 'show'])
      .nullish()
      .describe(
        'link (default): a plot is a file and a link to it; show: the model, which has to take images, also sees it',
      ),
    sub_tasks: z
      .strictObject({
        max_concurrent: whole(TASK_LIMITS.max_concurrent, 'how many are begun and not done; others wait'),
        max_turns: whole(TASK_LIMITS.max_turns, 'after how many model calls with their tools one ends'),
      })
      .nullish()
      .describe('the sub-agents that it starts, unless `config.dynamic_sub_agents` says that it starts none'),
    tool_search: z
      .enum(['keyword', 'hybrid'])
      .nullish()
      .describe(
        'how search_tools ranks tools: keyword (default), by words; hybrid, also by meaning, with the model for embeddings ' +
          'that the server must have',
      ),
    saved_tools: z
      .enum(['subject', 'agent', 'none'])
      .nullish()
      .describe(
        'which saved tools its code has. subject (default): those of the owner of the session for this agent; agent: those ' +
          'of the agent, which only a caller with the right to write agents changes; none: it saves none',
      ),
  })
  .meta({ id: 'CodeActions' });

/** A file that a workspace has from its beginning. */
export type WorkspaceFileSpec = z.infer<typeof workspaceFile>;
