import { context, propagation, trace } from '@opentelemetry/api';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { afterAll, expect, onTestFinished, test } from 'vitest';
import { oddEndpoint, type OddServer } from '../../test/support/odd-mcp-server.ts';
import { SCOPE } from '../../test/support/tool-scope.ts';
import { Metrics } from '../telemetry/metrics.ts';
import { instrumentCall } from './instrument-call.ts';
import { McpPool } from './pool.ts';

const exporter = new InMemorySpanExporter();
new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }).register();
afterAll(() => {
  for (const api of [trace, context, propagation]) api.disable();
});

test.each<[string, OddServer, string, object]>([
  [
    'of a tool is named after it',
    { results: { act: { content: [] } } },
    'tools/call act',
    { 'mcp.method.name': 'tools/call', 'gen_ai.operation.name': 'execute_tool', 'gen_ai.tool.name': 'act' },
  ],
  [
    'that reads a resource is named after the method alone',
    { resources: { 'a:secret': [] } },
    'resources/read',
    { 'mcp.method.name': 'resources/read' },
  ],
  [
    "of a server's own tool read_resource is that of a tool",
    { tools: [{ name: 'read_resource' }], resources: {}, results: { read_resource: { content: [] } } },
    'tools/call read_resource',
    { 'mcp.method.name': 'tools/call', 'gen_ai.operation.name': 'execute_tool', 'gen_ai.tool.name': 'read_resource' },
  ],
])('the span of a call %s', async (_, odd, name, attributes) => {
  const pool = new McpPool({ allowPrivateUrls: () => false });
  onTestFinished(() => pool.close());
  const endpoint = oddEndpoint(odd);
  const tool = odd.resources ? 'read_resource' : 'act';
  const calling = { operationId: 'turn_1/call_1', signal: new AbortController().signal, timeoutMs: 60_000 };
  exporter.reset();
  const answer = await instrumentCall({ metrics: new Metrics(), endpoint, tool }, () =>
    pool.call(endpoint, SCOPE, tool, { uri: 'a:secret' }, calling),
  );
  expect(answer).toMatchObject({ status: 'result', isError: false });
  expect(exporter.getFinishedSpans().map((span) => [span.name, span.attributes])).toEqual([
    [name, { ...attributes, 'everturn.mcp_server.name': 'odd' }],
  ]);
});
