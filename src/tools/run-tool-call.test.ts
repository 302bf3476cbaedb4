import { expect, test } from 'vitest';
import type { SessionOwner } from '../core/history.ts';
import type { ToolCall } from '../core/records/calls.ts';
import type { RunOptions } from './tool-kind.ts';
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

/** Runs a call, and notes whose rights its tools are loaded with, and it runs with, in `owners`. */
async function running(
  toolset: Toolset,
  { isEdited, made = call, owners = [] }: { isEdited: boolean; made?: ToolCall; owners?: SessionOwner[] },
): Promise<string> {
  const kind = {
    type: 'mcp' as const,
    tools: () => Promise.reject(new Error('unused')),
    run: (_: ToolCall, { scope }: RunOptions) => {
      owners.push(scope.owner);
      return Promise.resolve({ status: 'result' as const, isError: false, content: [] });
    },
  };
  const sources: ToolCallSources = {
    catalog: { agents: { spec: () => Promise.resolve({ model: { name: 'm' } }) } },
    toolKinds: { mcp: kind, system: { ...kind, type: 'system' } },
    toolsets: {
      load: (_, { owner }) => {
        owners.push(owner);
        return Promise.resolve(toolset);
      },
    },
    config: { tool: { timeoutSeconds: 1, heartbeatSeconds: 1 } },
  };
  const place = { sessionId: 's', owner: { subjectId: 'ann', draftRoles: null }, specHash: 'a', operationId: 'o' };
  const options = { ...place, mayRepeat: false, resumed: undefined, isEdited };
  const { status } = await runToolCall(sources, made, options, new AbortController().signal);
  return status;
}

test('edited arguments are validated again before the call is sent, against the schema that the tool has then', async () => {
  expect(await running(offered, { isEdited: false })).toBe('result');
  await expect(running(offered, { isEdited: true })).rejects.toThrow(/schema: \/amount/);
});

test('a call that a client has written runs with the rights of a draft of the client, also with edited arguments', async () => {
  const made: ToolCall = {
    ...call,
    arguments: '{"amount":1}',
    route: { to: 'server', effect: 'once', approval: true, callHash: 'h', draftRoles: ['user'] },
  };
  const owners: SessionOwner[] = [];
  expect(await running(offered, { isEdited: true, made, owners })).toBe('result');
  const ofDraft = { subjectId: 'ann', draftRoles: ['user'] };
  expect(owners).toEqual([ofDraft, ofDraft]);
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
