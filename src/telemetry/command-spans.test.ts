import { context, propagation, SpanStatusCode, trace } from '@opentelemetry/api';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';
import { Client, type WorkflowClientInterceptor } from '@temporalio/client';
import { defaultPayloadConverter, type Headers } from '@temporalio/common';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { TRACE_HEADER } from '../core/temporal-names.ts';
import { commandSpans } from './command-spans.ts';

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
provider.register();
beforeEach(() => exporter.reset());
afterAll(() => {
  for (const api of [trace, context, propagation]) api.disable();
});

/** A client whose commands have these outcomes, and the headers that they were sent with. */
function clientThat(outcome: { fails?: Error }) {
  const sent: Headers[] = [];
  const answer = (...headers: Headers[]): void => {
    sent.push(...headers);
    if (outcome.fails) throw outcome.fails;
  };
  const server: WorkflowClientInterceptor = {
    startWithDetails: async ({ headers }) => {
      answer(headers);
      return { runId: 'run-1', eagerlyStarted: false };
    },
    signal: async ({ headers }) => answer(headers),
    startUpdateWithStart: async ({ workflowStartHeaders, updateHeaders, updateOptions, workflowStartOptions }) => {
      answer(workflowStartHeaders, updateHeaders);
      const workflowExecution = { workflowId: workflowStartOptions.workflowId, runId: 'run-1' };
      return { workflowExecution, updateId: updateOptions.updateId ?? '', updateOutcome: { success: {} } };
    },
  };
  const interceptors = { workflow: [commandSpans(provider.getTracer('test')), server] };
  return { client: new Client({ interceptors }), sent };
}

const started = { workflowId: 'w', taskQueue: 'q' };

test.each<[string, (client: Client) => Promise<unknown>, object]>([
  ['StartWorkflow:session', ({ workflow }) => workflow.start('session', started), { run_id: 'run-1' }],
  ['SignalWorkflow:command', ({ workflow }) => workflow.getHandle('w').signal('command'), {}],
])('the span of %s has the ids, and its context is sent', async (name, command, attributes) => {
  const { client, sent } = clientThat({});
  await command(client);
  const [span, ...more] = exporter.getFinishedSpans();
  expect([span?.name, more]).toEqual([name, []]);
  expect(span?.attributes).toEqual({ temporalWorkflowId: 'w', ...attributes });
  expect(span?.status).toEqual({ code: SpanStatusCode.OK });
  const { traceId = '', spanId = '' } = span?.spanContext() ?? {};
  expect(sent.map((headers) => defaultPayloadConverter.fromPayload(headers[TRACE_HEADER]!))).toEqual([
    { traceparent: `00-${traceId}-${spanId}-01` },
  ]);
});

test('the span of a command that fails says so', async () => {
  const { client } = clientThat({ fails: new Error('no server') });
  await expect(client.workflow.getHandle('w').signal('command')).rejects.toThrow('no server');
  const [span] = exporter.getFinishedSpans();
  expect(span?.status).toEqual({ code: SpanStatusCode.ERROR, message: 'no server' });
  expect(span?.events).toMatchObject([{ name: 'exception', attributes: { 'exception.message': 'no server' } }]);
});
