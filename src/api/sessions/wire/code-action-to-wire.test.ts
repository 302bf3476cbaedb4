import { expect, test } from 'vitest';
import type { CallAction, ToolInfo } from '../../../core/records/calls.ts';
import type { PendingCall } from '../../../core/records/pending.ts';
import { codeActionToWire } from './code-action-to-wire.ts';

const AT = '2026-11-21T10:00:00.000Z';
const MCP: ToolInfo = { type: 'mcp', serverId: 's', serverName: 'lab', name: 'add' };

function shown(action: CallAction, name: string | ToolInfo, args: object, more: Partial<PendingCall> = {}) {
  const info: ToolInfo = typeof name === 'string' ? { type: 'system', name } : name;
  const run = { effect: 'once' as const, callHash: 'h1' };
  const call: PendingCall = {
    threadId: 'main',
    toolCallId: 'c1',
    needs: 'approval',
    source: { turnId: 't', messageId: 'm', stamp: '', index: 0, run },
    action: { ...action, info, arguments: JSON.stringify(args) },
    ...more,
  };
  return codeActionToWire(call, AT, 3_000);
}

const EMPTY = { tool: null, command: null, path: null, hash: 'h1', expires_at: null, parent: null };

test('each type of action shows what a person must see', () => {
  expect(shown({ type: 'code' }, 'ipython', { code: 'print(1)', timeout_seconds: 1 })).toEqual({
    ...EMPTY,
    type: 'code',
    display: 'print(1)',
    suggested_rule: { action: 'code' },
  });
  expect(shown({ type: 'reset' }, 'ipython_reset', {})).toEqual({
    ...EMPTY,
    type: 'reset',
    display: 'ipython_reset',
    suggested_rule: { action: 'reset' },
  });
  expect(shown({ type: 'task' }, 'create_sub_agent', { name: 'a', input: 'b' })).toEqual({
    ...EMPTY,
    type: 'task',
    display: 'create_sub_agent {"name":"a","input":"b"}',
    suggested_rule: { action: 'task' },
  });
  const saved = { kind: 'parser', category: 'a', name: 'b', description: 'Does it.', api: 'x = 1', impl: 'y = 2' };
  expect(shown({ type: 'save_tool' }, 'save_code_tool', saved)).toEqual({
    ...EMPTY,
    type: 'save_tool',
    display: 'save_code_tool gentools.a.b (parser)\nDoes it.\n\n# api.py\nx = 1\n\n# impl.py\ny = 2',
    suggested_rule: { action: 'save_tool' },
  });
  expect(shown({ type: 'save_tool' }, 'delete_code_tool', { category: 'a', name: 'b' })).toMatchObject({
    display: 'delete_code_tool gentools.a.b',
  });
  expect(shown({ type: 'file_write' }, 'write_file', { path: 'a/../b', content: 'x' })).toEqual({
    ...EMPTY,
    type: 'file_write',
    display: 'a/../b',
    path: 'a/../b',
    suggested_rule: { action: 'file_write', path: 'b' },
  });
  expect(shown({ type: 'tool' }, MCP, { n: 1 })).toEqual({
    ...EMPTY,
    type: 'tool',
    display: 'lab/add {"n":1}',
    tool: { server: 'lab', name: 'add' },
    suggested_rule: { action: 'tool', tool: 'lab/add' },
  });
});

test('a command is shown as it is, a script by its first line, with all of it in command', () => {
  const parent = { threadId: 'main', toolCallId: 'cell' };
  expect(shown({ type: 'shell', parent }, 'shell', { command: 'git push  origin', cwd: '/workspace' })).toEqual({
    ...EMPTY,
    type: 'shell',
    display: 'git push  origin',
    command: 'git push  origin',
    suggested_rule: { action: 'shell', command: 'git push *' },
    parent: { thread_id: 'main', tool_call_id: 'cell' },
  });
  expect(shown({ type: 'shell', isOpaque: true }, 'shell', { command: 'ls > a' })).toMatchObject({
    suggested_rule: { action: 'shell', command: 'ls > a' },
  });
  const script = 'cd a\nls\nrm b\n';
  expect(shown({ type: 'shell_script' }, 'shell_script', { script })).toMatchObject({
    display: 'cd a (+2 lines)',
    command: script,
    suggested_rule: { action: 'shell', command: script },
  });
});

test('the approval expires when its policy says so', () => {
  const policy = { quorum: 1, onExpiry: 'deny' as const, expiresInSeconds: 60 };
  expect(shown({ type: 'code' }, 'ipython', { code: '1' }, { policy })).toMatchObject({
    expires_at: '2026-11-21T10:01:00.000Z',
  });
});

test('long texts are cut, and say so', () => {
  const { display = '' } = shown({ type: 'code' }, 'ipython', { code: 'x'.repeat(5_000) }) ?? {};
  expect(display.length).toBeLessThan(1_100);
  expect(display).toMatch(/\[\d+ characters left out here/);
});
