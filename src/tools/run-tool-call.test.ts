import { expect, test } from 'vitest';
import type { ToolCall } from '../core/records.ts';
import type { Toolset } from './toolset.ts';
import { runToolCall, type ToolCallSources } from './run-tool-call.ts';

const call: ToolCall = {
  id: 'p1',
  name: 'pay',
  arguments: '{"amount":"all"}',
  info: { type: 'mcp', serverId: 's', serverName: 'bank', name: 'pay' },
  route: { to: 'server', effect: 'once', approval: true, callHash: 'h' },
};

const info = call.info;
const run = { to: 'server', effect: 'once', approval: true } as const;
const parameters = { properties: { amount: { type: 'number' } } };
const offered: Toolset = {
  tools: new Map([['pay', { name: 'pay', description: '', parameters, info, run }]]),
  servers: [],
  unavailable: [],
};

async function running(toolset: Toolset, { isEdited }: { isEdited: boolean }): Promise<string> {
  const kind = {
    type: 'mcp' as const,
    tools: () => Promise.reject(new Error('unused')),
    run: () => Promise.resolve({ status: 'result' as const, isError: false, content: [] }),
  };
  const sources: ToolCallSources = {
    catalog: { agents: { spec: () => Promise.resolve({ model: { name: 'm' } }) } },
    toolKinds: { mcp: kind, system: { ...kind, type: 'system' } },
    toolsets: { load: () => Promise.resolve(toolset) },
    config: { tool: { timeoutSeconds: 1, heartbeatSeconds: 1 } },
  };
  const place = { sessionId: 's', owner: { subjectId: 'ann', draftRoles: null }, specHash: 'a', operationId: 'o' };
  const options = { ...place, mayRepeat: false, resumed: undefined, isEdited };
  const { status } = await runToolCall(sources, call, options, new AbortController().signal);
  return status;
}

test('edited arguments are validated again before the call is sent, against the schema that the tool has then', async () => {
  expect(await running(offered, { isEdited: false })).toBe('result');
  await expect(running(offered, { isEdited: true })).rejects.toThrow(/schema: \/amount/);
});

test('a call whose server requires a sign-in waits for that, and is validated afterwards', async () => {
  const endpoint = {
    id: 's',
    name: 'bank',
    idempotentTools: [],
    isolation: 'subject',
    url: 'https://bank.test',
    headers: {},
    trusted: false,
  } as const;
  const signIn = { endpoint, challenge: {} };
  const unavailable = [{ server: 'bank', reason: 'it requires a sign-in', signIn }];
  expect(await running({ ...offered, tools: new Map(), unavailable }, { isEdited: true })).toBe('sign_in_required');
});
