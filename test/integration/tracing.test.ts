import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { pino } from 'pino';
import { startTracing, type Tracing } from '../../src/telemetry/tracing.ts';
import { late } from '../support/mcp-server.ts';
import { OtlpReceiver, type SeenSpan } from '../support/otlp-receiver.ts';
import { say, use, type ModelCall } from '../support/scripted-model.ts';
import { startOwnTemporal, type OwnTemporal } from '../support/own-temporal.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

let collector: OtlpReceiver;
let tracing: Tracing;
let temporal: OwnTemporal;
let server: TestServer;
beforeAll(async () => {
  collector = await OtlpReceiver.start();
  vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', collector.url);
  vi.stubEnv('OTEL_BSP_SCHEDULE_DELAY', '50');
  vi.stubEnv('OTEL_SERVICE_NAME', 'everturn-test');
  tracing = startTracing(pino({ level: 'silent' }));
  // The default is to suggest it after 4,000 events, and to delay runs that are as short as these.
  temporal = await startOwnTemporal({
    'limit.historyCount.suggestContinueAsNew': 60,
    'history.continueAsNewMinInterval': '20ms',
  });
  server = await startTestServer({
    env: { TEMPORAL_ADDRESS: temporal.address },
    tracing,
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => late('seen: the secret of the tool') },
        { name: 'erase', annotations: { destructiveHint: true }, handler: () => 'erased' },
      ],
    },
  });
});
afterAll(async () => {
  await server.stop();
  await temporal.stop();
  await tracing.stop();
  await collector.stop();
  vi.unstubAllEnvs();
});

const CALLER = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331' };
const POST = 'POST /v1/agents/sessions/:session_id/turns';
const UPDATE = 'UpdateWithStartWorkflow:createTurn';

/** The spans of a trace, once those of `turns` turns have arrived, which end last. */
async function traceOf(traceId: string, turns = 1): Promise<Map<string, SeenSpan[]>> {
  const spans = () =>
    Map.groupBy(
      collector.spans.filter((span) => span.traceId === traceId),
      ({ name }) => name,
    );
  await expect.poll(() => spans().get('turn')?.length).toBe(turns);
  return spans();
}

test('one turn is one trace, from the caller through session and turn to the model and the tool', async () => {
  const asked: ModelCall[] = [];
  const chat = await server.chat({
    scripts: [
      (call) => {
        asked.push(call);
        return use({ name: 'look', args: { at: 'the secret of the arguments' } })(call);
      },
      (call) => {
        asked.push(call);
        return say('The secret of the answer.')(call);
      },
    ],
    spec: { ...onTestServer, instructions: 'the secret of the instructions' },
  });
  const headers = { traceparent: `00-${CALLER.traceId}-${CALLER.spanId}-01`, baggage: 'user=secret' };
  const reader = chat.turn('the secret of the user', {}, headers);
  await reader.done;
  const turnId = await reader.turnId();
  const model = `chat ${chat.agent}`;
  await expect
    .poll(() => collector.tree(CALLER.traceId))
    .toEqual(
      [
        `${POST} < ?`,
        `${UPDATE} < ${POST}`,
        `turn < ${UPDATE}`,
        // Each call was speculative; its activity has only taken the response.
        `${model} < turn`,
        'callModel < turn',
        'callTool < turn',
        'tools/call look < turn',
        'callModel < turn',
        `${model} < turn`,
      ].toSorted(),
    );
  const spans = await traceOf(CALLER.traceId);
  const only = (name: string): SeenSpan => {
    const [span, ...more] = spans.get(name) ?? [];
    if (!span || more.length > 0) throw new Error(`${name}: ${more.length + 1}`);
    return span;
  };
  expect(only(POST)).toMatchObject({
    parentSpanId: CALLER.spanId,
    service: 'everturn-test',
    attributes: { 'http.response.status_code': 200, 'http.route': '/v1/agents/sessions/:session_id/turns' },
  });
  const ids = {
    'gen_ai.conversation.id': chat.sessionId,
    'everturn.session.id': chat.sessionId,
    'everturn.turn.id': turnId,
  };
  for (const [name, all] of spans) for (const { attributes } of all) expect(attributes, name).toMatchObject(ids);
  expect(only('turn').attributes).toMatchObject({ 'everturn.turn.status': 'done' });
  for (const { attributes } of spans.get(model) ?? []) {
    expect(attributes).toMatchObject({
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'openai',
      'gen_ai.request.model': chat.agent,
      'gen_ai.usage.input_tokens': 10,
      'gen_ai.usage.output_tokens': 5,
    });
  }
  expect(only('tools/call look').attributes).toMatchObject({
    'mcp.method.name': 'tools/call',
    'gen_ai.operation.name': 'execute_tool',
    'gen_ai.tool.name': 'look',
  });

  // Requests to model and tool carry their place in the trace.
  const at = (span: SeenSpan) => `00-${CALLER.traceId}-${span.spanId}-01`;
  const call = server.mcp.calls.at(-1);
  expect([call?.headers['traceparent'], call?.meta['traceparent']]).toEqual(Array(2).fill(at(only('tools/call look'))));
  const toldModels = asked.map((one) => one.headers['traceparent']);
  expect(new Set(toldModels)).toEqual(new Set((spans.get(model) ?? []).map(at)));
  expect([call?.headers['baggage'], ...asked.map((one) => one.headers['baggage'])]).toEqual(Array(3).fill(undefined));
  // No trace contains any text of the conversation.
  expect(collector.text).not.toContain('secret');
});

test('a retried model call and a failed tool are spans of the same trace, with the class of the error', async () => {
  const chat = await server.chat({
    scripts: [
      (call) => call.fail(503, 'the words of the provider', { 'retry-after-ms': '1' }),
      use({ name: 'gone' }),
      say('ok'),
    ],
    spec: onTestServer,
  });
  const reader = chat.turn('go');
  await reader.done;
  const turnId = await reader.turnId();
  const [post] = await found(({ name, attributes }) => name === POST && attributes['everturn.turn.id'] === turnId);
  const spans = await traceOf(post?.traceId ?? '');
  const chats = spans.get(`chat ${chat.agent}`) ?? [];
  expect(chats.length).toBe(3);
  expect(chats.flatMap(({ attributes }) => attributes['error.type'] ?? [])).toEqual(['overloaded']);
  const attempts = (spans.get('callModel') ?? []).map(({ attributes }) => attributes['everturn.attempt']);
  expect(attempts.map(Number).toSorted((a, b) => a - b)).toEqual([1, 1, 2]);
  expect(collector.text).not.toContain('words of the provider');
});

test('a turn that continues after an approval is its own trace, with a link to the previous turn', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'erase', id: 'e1' }), say('Gone.')], spec: onTestServer });
  const first = chat.turn('go');
  await first.done;
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'e1', approval: { status: 'allow' } };
  const second = chat.turn([approval]);
  await second.done;
  const [before, after] = await Promise.all(
    [first, second].map(async (reader) => {
      const turnId = await reader.turnId();
      const [turn] = await found(
        ({ name, attributes }) => name === 'turn' && attributes['everturn.turn.id'] === turnId,
      );
      return turn;
    }),
  );
  expect(before?.links).toEqual([]);
  expect(after?.links).toMatchObject([{ traceId: before?.traceId, spanId: before?.spanId }]);
  expect(after?.traceId).not.toBe(before?.traceId);
});

test('turns link to the previous ones although their session has continued as new in between', async () => {
  const chat = await server.chat();
  // Enough for three runs of the session.
  for (let n = 0; n < 14; n++) await chat.turn(`question ${n}`).done;
  const spans = (): SeenSpan[] =>
    collector.spans.filter(
      ({ name, attributes }) => name === 'turn' && attributes['everturn.session.id'] === chat.sessionId,
    );
  await expect.poll(() => spans().length).toBe(14);
  const links = spans().map((span) => span.links.length);
  expect(links.toSorted((a, b) => a - b)).toEqual([0, ...Array.from({ length: 13 }, () => 1)]);
});

test('a caller that opts out of tracing is not traced', async () => {
  const chat = await server.chat({ scripts: [use({ name: 'look' }), say('ok')], spec: onTestServer });
  const traceId = '1af7651916cd43dd8448eb211c80319c';
  await chat.turn('go', {}, { traceparent: `00-${traceId}-${CALLER.spanId}-00` }).done;
  expect(server.mcp.calls.at(-1)?.headers['traceparent']).toMatch(new RegExp(`^00-${traceId}-[0-9a-f]{16}-00$`));
  await chat.turn('again').done;
  await found(({ name, attributes }) => name === 'turn' && attributes['everturn.session.id'] === chat.sessionId);
  expect(collector.spans.filter((span) => span.traceId === traceId)).toEqual([]);
});

async function found(isMeant: (span: SeenSpan) => boolean): Promise<SeenSpan[]> {
  await expect.poll(() => collector.spans.some(isMeant)).toBe(true);
  return collector.spans.filter(isMeant);
}
