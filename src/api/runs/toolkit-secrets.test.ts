import { expect, test } from 'vitest';
import { McpRegistry } from '../../mcp/registry.ts';
import { withSecrets } from '../../mcp/server-secrets.ts';
import type { AgentSpec } from '../../spec/agent-spec.ts';
import type { ApiError } from '../http/errors.ts';
import { parsePart } from '../http/request.ts';
import { toSpec, withParams } from './agent-to-spec.ts';
import { runErrors } from './errors.ts';
import { runRequest } from './wire/request.ts';

const input = [{ type: 'message', role: 'user', content: 'hi' }];

const CONTEXT = {
  token: 'of-ann',
  basic: 'Basic YW5uOg==',
  lines: 'a\r\nX-Admin: 1',
  long: 'x'.repeat(20_000),
  user: { id: 7, name: 'Ann' },
  empty: '',
};

const lab = { type: 'mcp', name: 'lab', url: 'https://lab.example/mcp' };

function agentOf(toolkits: object[], context: unknown = CONTEXT) {
  const request = parsePart(runRequest, { input, agent: { model: 'm', toolkits }, context }, 'body');
  return toSpec(request.agent, request.context);
}

/** The headers of the only toolkit. */
function headersOf(toolkit: object) {
  return agentOf([{ ...lab, ...toolkit }]).secrets?.headers[0];
}

test.each([
  [{ authorization: '{{context.token}}' }, { authorization: 'Bearer of-ann' }],
  [{ authorization: ' Bearer {{ context.token }} ' }, { authorization: 'Bearer of-ann' }],
  [{ authorization: '{{context.basic}}' }, { authorization: 'Basic YW5uOg==' }],
  [{ headers: { Authorization: 'ApiKey-{{context.token}}' } }, { authorization: 'ApiKey-of-ann' }],
  [
    { authorization: 'fixed', headers: { 'X-User': '{{context.user}}', 'x-id': '{{context.user.id}}' } },
    { authorization: 'Bearer fixed', 'x-user': '{"id":7,"name":"Ann"}', 'x-id': '7' },
  ],
  [{ authorization: null, headers: {}, context_keys: [] }, undefined],
])('%j gives the headers %j', (toolkit, headers) => {
  expect(headersOf(toolkit)).toEqual(headers);
});

test('the spec says which servers are given what, and has neither values nor templates', () => {
  const toolkits = [
    { ...lab, authorization: '{{context.token}}', context_keys: ['user'] },
    { ...lab, name: 'plain' },
    { ...lab, name: 'told', context_keys: ['empty', 'toString', 'nothing'] },
    { type: 'mcp', server: 'crm', authorization: 'fixed' },
  ];
  const { spec, secrets } = agentOf(toolkits);
  expect(spec.givenToServers).toEqual([
    { server: 'lab', headers: 0, contextKeys: ['user'] },
    { server: 'told', contextKeys: ['empty', 'toString', 'nothing'] },
    { server: 'crm', headers: 1 },
  ]);
  expect(secrets).toEqual({
    headers: [{ authorization: 'Bearer of-ann' }, { authorization: 'Bearer fixed' }],
    context: { user: { id: 7, name: 'Ann' }, empty: '' },
  });
  for (const text of ['of-ann', 'Ann', 'fixed', '{{']) expect(JSON.stringify(spec)).not.toContain(text);
  expect(agentOf([lab])).not.toHaveProperty('secrets');
  expect(agentOf([{ ...lab, context_keys: ['length'] }], 'a text').secrets?.context).toEqual({});
});

test('a repeated request gives its servers the same credentials after another server was added to the agent', () => {
  const toolkits = ['one', 'two'].map((path) => {
    return { type: 'mcp' as const, url: `https://a.example/${path}`, authorization: `of-${path}` };
  });
  const change = (spec: AgentSpec) => withParams(spec, { toolkits }, {});
  const { spec } = change({ model: { name: 'm' } });
  const more = { type: 'inline' as const, name: 'a-example', url: 'https://a.example/more' };
  const { secrets } = change({ model: { name: 'm' }, mcp_servers: [more] });
  const registry = new McpRegistry();
  const sent = spec.givenToServers?.map((given) => {
    const server = spec.mcp_servers?.find(({ name }) => name === given.server);
    const endpoint = server && registry.resolve(server);
    return endpoint && withSecrets(endpoint, given, { secrets, sessionId: 'ses_1' });
  });
  expect(sent).toMatchObject(
    toolkits.map(({ url, authorization }) => ({
      endpoint: { url, headers: { authorization: `Bearer ${authorization}` } },
    })),
  );
});

test.each<[object, number, string, string]>([
  [{ authorization: '{{context.tokens}}' }, 422, 'invalid_context', 'authorization'],
  [{ headers: { 'x-a': '{{context.user.age}}' } }, 422, 'invalid_context', 'headers.x-a'],
  [{ headers: { 'x-a': '{{context.long}}{{context.long}}' } }, 422, 'invalid_context', 'headers.x-a'],
  [{ authorization: '{{context.empty}}' }, 400, 'invalid_request', 'authorization'],
  [{ authorization: '{{context.lines}}' }, 400, 'invalid_request', 'authorization'],
  [{ authorization: 'a', headers: { Authorization: 'b' } }, 400, 'invalid_request', 'headers.Authorization'],
  [{ headers: { 'x-a': 'a', 'X-A': 'b' } }, 400, 'invalid_request', 'headers.X-A'],
  [{ headers: { 'x-a': 'a\nb' } }, 400, 'invalid_request', 'headers.x-a'],
  [{ headers: { 'x-a': '漢' } }, 400, 'invalid_request', 'headers.x-a'],
  [{ headers: { 'x a': 'a' } }, 400, 'invalid_request', 'headers.x a'],
  [{ headers: { 'x-a\r\nx-b': 'a' } }, 400, 'invalid_request', 'headers.x-a\r\nx-b'],
  [{ headers: { a: 'x'.repeat(16_384), b: 'x'.repeat(16_384) } }, 400, 'invalid_request', 'headers'],
  [{ url: null, name: null, server: 'crm', headers: { 'x-a': 'a' } }, 400, 'invalid_request', 'headers'],
  ...[
    'Host',
    'Content-Length',
    'content-type',
    'Connection',
    'Transfer-Encoding',
    'Proxy-Authorization',
    'Mcp-Session-Id',
    'MCP-Protocol-Version',
    'Last-Event-ID',
    'Idempotency-Key',
    'traceparent',
  ].map((name): [object, number, string, string] => [
    { headers: { [name]: 'x' } },
    400,
    'invalid_request',
    `headers.${name}`,
  ]),
])('%j is refused, without the value', (toolkit, status, code, place) => {
  try {
    agentOf([{ ...lab, ...toolkit }]);
    expect.unreachable();
  } catch (error) {
    const { body, ...response } = runErrors.toResponse(error as ApiError);
    expect(response.status).toBe(status);
    expect(body).toMatchObject({ error: { code, param: `agent.toolkits[0].${place}` } });
    expect(JSON.stringify(body)).not.toContain('X-Admin');
  }
});
