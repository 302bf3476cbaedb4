import type { AgentSpec } from '../../../spec/agent-spec.ts';
import { codeActionsOf } from '../../../spec/code-actions.ts';
import { decideCall, type Decision } from '../../../tools/decision-policy.ts';
import type { AgentTool } from '../../../tools/toolset.ts';
import type { CodeRules } from './code-rules.ts';
import type { CommandPiece } from './permission-action.ts';

interface DecidedCommand {
  piece: CommandPiece;
  /** Whether it is a whole script, which only an equal rule, or a rule for everything, allows. */
  isScript: boolean;
  spec: AgentSpec;
  rules: Pick<CodeRules, 'decideAction'>;
}

/** A tool of agents that act in code, with the default from their `approvals`. */
export function codeAgentTool(name: string, byDefault: 'allow' | 'ask' | 'deny'): AgentTool {
  return {
    name,
    description: '',
    parameters: {},
    info: { type: 'system', name },
    run: {
      to: 'server',
      effect: 'once',
      approval: byDefault === 'ask',
      ...(byDefault === 'deny' && { isDenied: true as const }),
    },
  };
}

/** Decides on a piece of a command line or on a script, by the rules and by policies for the tool `shell`. */
export function decideShell({ piece, isScript, spec, rules }: DecidedCommand): Decision {
  const { text, commands, isOpaque } = piece;
  const action = { type: 'shell' as const, text, commands, isOpaque: isOpaque || isScript };
  const ruled = rules.decideAction(action);
  const tool = codeAgentTool('shell', codeActionsOf(spec)?.approvals.shell ?? 'deny');
  return decideCall(spec, tool, { command: text }, { decide: () => ruled });
}
