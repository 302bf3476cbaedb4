import { codeActionsOf } from '../../../spec/code-actions.ts';
import { WORKSPACE } from '../../../spec/workspace-path.ts';
import { decideCall } from '../../../tools/decision-policy.ts';
import type { CodeCall } from '../host/code-step.ts';
import type { LinkCheck } from '../workspace/entry.ts';
import type { FileTool } from '../workspace/file-tools.ts';
import { shown, WorkspaceFileError } from '../workspace/workspace-path.ts';
import { parsedArguments } from './call-action.ts';
import { codeRules, type RuleSources } from './code-rules.ts';
import { codeAgentTool } from './decide-shell.ts';

/**
 * Decides again on a call of a file tool whose path leads elsewhere by links: rules and people have decided on the path
 * as written. If a person would have to approve it and none has, the error asks the model to name the other path.
 */
export function linkCheck(
  { name, action }: Pick<FileTool, 'name' | 'action'>,
  { call, spec, input }: Pick<CodeCall, 'call' | 'spec' | 'input'>,
  sources: RuleSources,
): LinkCheck {
  return async (path) => {
    const rules = await codeRules(sources, spec, input);
    const tool = codeAgentTool(name, codeActionsOf(spec)?.approvals[action] ?? 'deny');
    const args = { ...parsedArguments(call), path: `${WORKSPACE}/${path}` };
    const { decision } = decideCall(spec, tool, args, rules);
    const wasAsked = call.route.to === 'server' && call.route.approval;
    if (decision === 'allow' || (decision === 'ask' && wasAsked)) return;
    const problem = decision === 'deny' ? 'which is not allowed' : 'on which a person decides: name that path';
    throw new WorkspaceFileError('invalid_path', `the path leads by a link to ${shown(path)}, ${problem}`);
  };
}
