import { expiresAt } from '../../../core/call.ts';
import type { PendingCall } from '../../../core/records/pending.ts';
import { isoTime, truncateMiddle } from '../../../core/text.ts';
import { parsedArguments, pendingAction } from '../../../features/code/permissions/call-action.ts';
import type { PermissionAction } from '../../../features/code/permissions/permission-action.ts';
import { savedToolDisplay } from '../../../features/code/saved-tools/save-tool.ts';
import { suggestedRule } from '../../../features/code/permissions/suggested-rule.ts';
import type { WireCodeAction } from './required-actions.ts';

/**
 * The action that a person decides on, for a call of an agent that acts in code; undefined for calls of other agents.
 * @param at when the log asked for the approval
 * @param maxBytes of its texts together, in JSON
 */
export function codeActionToWire(call: PendingCall, at: string, maxBytes: number): WireCodeAction | undefined {
  const { action, source } = call;
  if (!action) return undefined;
  const { type, parent } = action;
  const decided = pendingAction(call);
  const fit = (text: string): string =>
    truncateMiddle(text, maxBytes / 3, (n) => `[${n} characters left out here: the message with the call has them]`);
  const expiry = expiresAt({ ...call, askedAt: Date.parse(at) });
  return {
    type,
    display: fit(displayOf(action, decided)),
    tool: decided?.type === 'tool' ? { server: decided.server, name: decided.name } : null,
    command: decided?.type === 'shell' ? fit(decided.text) : null,
    path: decided && 'path' in decided ? fit(decided.path) : null,
    suggested_rule: decided ? suggestedRule(decided) : null,
    hash: source.run?.callHash ?? '',
    expires_at: expiry === undefined ? null : isoTime(expiry),
    parent: parent ? { thread_id: parent.threadId, tool_call_id: parent.toolCallId } : null,
  };
}

function displayOf(action: NonNullable<PendingCall['action']>, decided: PermissionAction | undefined): string {
  switch (decided?.type) {
    case 'code': {
      const { code } = parsedArguments(action);
      return typeof code === 'string' ? code : '';
    }
    case 'shell':
      return action.type === 'shell_script' ? scriptDisplay(decided.text) : decided.text;
    case 'file_read':
    case 'file_write':
    case 'file_edit':
      return decided.path;
    case 'tool':
      return `${decided.server}/${decided.name} ${action.arguments}`;
    case 'task':
      return `${action.info.name} ${action.arguments}`;
    case 'save_tool':
      return savedToolDisplay(action.info.name, parsedArguments(action));
    case 'reset':
    case undefined:
      return action.info.name;
  }
}

/** The first line of a script, and how many follow. */
function scriptDisplay(script: string): string {
  const [first = '', ...others] = script.trimEnd().split('\n');
  return others.length === 0 ? first : `${first} (+${others.length} lines)`;
}
