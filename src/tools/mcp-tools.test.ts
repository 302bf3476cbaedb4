import { expect, test } from 'vitest';
import { mcpServer } from '../spec/agent-spec.ts';
import { agentTools } from './mcp-tools.ts';

const registered = { type: 'truefoundry-mcp-registry', name: 'crm' };
const inline = { type: 'inline', name: 'crm', url: 'https://mcp.example.com/mcp' };

const offered = {
  id: 'crm',
  name: 'crm',
  tools: [
    { name: 'find', inputSchema: { type: 'object' as const }, annotations: { readOnlyHint: true } },
    { name: 'pay', inputSchema: { type: 'object' as const }, annotations: { readOnlyHint: false } },
  ],
};

test.each([
  [registered, ['find']],
  [{ ...registered, begin_ahead: null }, ['find']],
  [{ ...registered, begin_ahead: false }, []],
  [inline, []],
  [{ ...inline, begin_ahead: null }, []],
  [{ ...inline, begin_ahead: true }, ['find']],
])(
  'read-only tools begin ahead if the operator has registered their server, or the agent says so: %j',
  (spec, ahead) => {
    const tools = agentTools(mcpServer.parse(spec), offered);
    expect(tools.filter(({ beginsAhead }) => beginsAhead).map(({ name }) => name)).toEqual(ahead);
  },
);
