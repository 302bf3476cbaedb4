import { expect, test } from 'vitest';
import { CREATE_SUB_AGENT } from '../../../agents/start-sub-agent.ts';
import type { CallAction, ToolInfo } from '../../../core/records/calls.ts';
import { ASK_USER_QUESTION } from '../../../tools/system-tools.ts';
import { IPYTHON, IPYTHON_RESET } from '../code-tools.ts';
import { DELETE_CODE_TOOL, SAVE_CODE_TOOL } from '../saved-tools/save-tool.ts';
import { FILE_TOOLS } from '../workspace/file-tools.ts';
import { callActionOf } from './call-action.ts';

const system = (name: string): ToolInfo => ({ type: 'system', name });
const mcp = (name: string): ToolInfo => ({ type: 'mcp', serverId: 's', serverName: 'bank', name });

test.each<[string, CallAction['type'] | undefined]>([
  [IPYTHON.name, 'code'],
  [IPYTHON_RESET.name, 'reset'],
  [CREATE_SUB_AGENT.name, 'task'],
  [SAVE_CODE_TOOL.name, 'save_tool'],
  [DELETE_CODE_TOOL.name, 'save_tool'],
  ...FILE_TOOLS.map(({ name, action }): [string, CallAction['type']] => [name, action]),
  [ASK_USER_QUESTION.name, undefined],
])(
  'a call of %s is the action %s, and one of a server that has a tool of that name is a call of a tool',
  (name, type) => {
    expect(callActionOf(system(name))?.type).toBe(type);
    expect(callActionOf(mcp(name))).toEqual({ type: 'tool' });
  },
);
