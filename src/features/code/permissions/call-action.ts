import { CREATE_SUB_AGENT } from '../../../agents/start-sub-agent.ts';
import type { CallAction, ToolCall, ToolInfo } from '../../../core/records/calls.ts';
import type { PendingCall } from '../../../core/records/pending.ts';
import { isJsonObject, parsedJson } from '../../../lib/json.ts';
import { IPYTHON, IPYTHON_RESET } from '../code-tools.ts';
import { DELETE_CODE_TOOL, SAVE_CODE_TOOL } from '../saved-tools/save-tool.ts';
import { FILE_TOOLS } from '../workspace/file-tools.ts';
import type { PermissionAction } from './permission-action.ts';

const OF_TOOLS: ReadonlyMap<string, CallAction['type']> = new Map<string, CallAction['type']>([
  [IPYTHON.name, 'code'],
  [IPYTHON_RESET.name, 'reset'],
  [CREATE_SUB_AGENT.name, 'task'],
  [SAVE_CODE_TOOL.name, 'save_tool'],
  [DELETE_CODE_TOOL.name, 'save_tool'],
  ...FILE_TOOLS.map(({ name, action }) => [name, action] as const),
]);

/** The action of a model's call, in an agent that acts in code; undefined for a tool to which no rules apply. */
export function callActionOf(info: ToolInfo): CallAction | undefined {
  switch (info.type) {
    case 'mcp':
      return { type: 'tool' };
    case 'system': {
      const type = OF_TOOLS.get(info.name);
      return type && { type };
    }
  }
}

/** The action to decide on, from the arguments of the call; undefined if the action needs other arguments. */
export function permissionAction(
  { type, isOpaque }: CallAction,
  info: ToolInfo,
  args: Record<string, unknown>,
): PermissionAction | undefined {
  switch (type) {
    case 'code':
    case 'reset':
    case 'task':
    case 'save_tool':
      return { type };
    case 'tool':
      return info.type === 'mcp' ? { type, server: info.serverName, name: info.name } : undefined;
    case 'file_read':
    case 'file_write':
    case 'file_edit':
      return typeof args.path === 'string' ? { type, path: args.path } : undefined;
    case 'shell':
    case 'shell_script': {
      const text = type === 'shell' ? args.command : args.script;
      // The decision here is about the text only: the commands inside are available only to a parser.
      return typeof text === 'string'
        ? { type: 'shell', text, isOpaque: isOpaque === true || type === 'shell_script', commands: [] }
        : undefined;
    }
  }
}

/** The action on which a person decides with the answer to a waiting call. */
export function pendingAction({ action }: Pick<PendingCall, 'action'>): PermissionAction | undefined {
  return action && permissionAction(action, action.info, parsedArguments(action));
}

export function parsedArguments({ arguments: text }: Pick<ToolCall, 'arguments'>): Record<string, unknown> {
  const args = parsedJson(text);
  return isJsonObject(args) ? args : {};
}
