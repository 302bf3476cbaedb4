import { KERNEL } from '../../core/call-order.ts';
import type { OfferedTool } from '../../models/provider.ts';
import { codeActionsOf, type CodeAction } from '../../spec/code-actions.ts';
import type { SystemTool } from '../../tools/system-tool.ts';
import { DELETE_CODE_TOOL, SAVE_CODE_TOOL } from './saved-tools/save-tool.ts';
import { mayHaveSavedTools } from './saved-tools/saved-tool.ts';
import { FILE_TOOLS } from './workspace/file-tools.ts';

type SandboxTool = Extract<SystemTool, { inSandbox: unknown }>;

const MAX_CODE_LENGTH = 1_000_000;

export const IPYTHON = sandboxTool(
  'code',
  { effect: 'once', order: { server: KERNEL } },
  {
    name: 'ipython',
    description:
      'Run Python code in a stateful IPython kernel: variables, imports and functions are kept for the next calls. Top-level ' +
      'await works; the value of the last expression is displayed. Print final results only. Plots are saved as files, to ' +
      'which the result links. `!command` and `%%bash` run commands; other programs are not available, nor is the network unless the instructions name hosts.',
    parameters: {
      type: 'object',
      properties: {
        code: { type: 'string', minLength: 1, maxLength: MAX_CODE_LENGTH },
        timeout_seconds: {
          type: 'integer',
          minimum: 1,
          description: 'A lower time limit than the usual one, at which the code is interrupted.',
        },
      },
      required: ['code'],
      additionalProperties: false,
    },
  },
);

export const IPYTHON_RESET = sandboxTool(
  'reset',
  { effect: 'retry', order: { server: KERNEL } },
  {
    name: 'ipython_reset',
    description: 'Restart the IPython kernel: all variables are lost, files remain.',
    parameters: { type: 'object', properties: {}, additionalProperties: false },
  },
);

/** The tools of agents that act in code, in the order for the model. */
export const CODE_TOOLS: readonly SandboxTool[] = [
  IPYTHON,
  IPYTHON_RESET,
  ...FILE_TOOLS.map(({ action, effect, name, description, parameters }) =>
    sandboxTool(action, { effect }, { name, description, parameters }),
  ),
  // May be retried: a repetition finds the tool that the first attempt has saved.
  savingTool('retry', SAVE_CODE_TOOL),
  savingTool('once', DELETE_CODE_TOOL),
];

/** A tool of the agents that act in code; `action`: the kind of action in their approvals. */
function sandboxTool(
  action: CodeAction,
  inSandbox: SandboxTool['inSandbox'],
  { name, ...offered }: OfferedTool,
): SandboxTool {
  return {
    name,
    inSandbox,
    offer: (spec) => (codeActionsOf(spec) ? offered : undefined),
    decision: (spec) => codeActionsOf(spec)?.approvals[action] ?? 'deny',
  };
}

function savingTool(effect: SandboxTool['inSandbox']['effect'], offered: OfferedTool): SandboxTool {
  const tool = sandboxTool('save_tool', { effect }, offered);
  return { ...tool, offer: (spec) => (mayHaveSavedTools(spec) ? tool.offer(spec) : undefined) };
}
