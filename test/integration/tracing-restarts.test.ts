import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { late, TestMcpServer } from '../support/mcp-server.ts';
import { OtlpReceiver } from '../support/otlp-receiver.ts';
import { startOwnTemporal } from '../support/own-temporal.ts';
import { expectReplays } from '../support/replay.ts';
import { held, say, ScriptedModel, use, type Script } from '../support/scripted-model.ts';
import { ServerProcess } from '../support/server-process.ts';
import { onTestServer } from '../support/test-server.ts';

/** A server that dies three times during a turn; it traces, then does not, then traces again. */

const TRACE = '0af7651916cd43dd8448eb211c80319c';

test('a turn is one trace across crashes, runs and servers that do not trace, and its histories replay', async () => {
  const cleanup: (() => Promise<unknown>)[] = [];
  try {
    const folder = await mkdtemp(path.join(tmpdir(), 'everturn-tracing-'));
    cleanup.unshift(() => rm(folder, { recursive: true, force: true }));
    const temporal = await startOwnTemporal({
      'limit.historyCount.suggestContinueAsNew': 40,
      'history.continueAsNewMinInterval': '20ms',
    });
    cleanup.unshift(() => temporal.stop());
    const [collector, model] = await Promise.all([OtlpReceiver.start(), ScriptedModel.start()]);
    const mcp = await TestMcpServer.start({
      tools: [{ name: 'look', annotations: { readOnlyHint: true }, handler: ({ n }) => late(`seen ${String(n)}`) }],
    });
    cleanup.unshift(() => Promise.all([collector.stop(), model.stop(), mcp.stop()]));
    const mcpFile = path.join(folder, 'mcp.json');
    await writeFile(mcpFile, JSON.stringify({ servers: { test: { url: mcp.url } } }));
    const env = {
      EVERTURN_MCP_SERVERS: mcpFile,
      EVERTURN_SHUTDOWN_SECONDS: '1',
      OPENAI_API_KEY: 'x',
      OPENAI_BASE_URL: model.url,
      TEMPORAL_ADDRESS: temporal.address,
      TEMPORAL_NAMESPACE: temporal.namespace,
    };
    const traced = { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_BSP_SCHEDULE_DELAY: '20' };
    const start = async (settings: Record<string, string>): Promise<ServerProcess> => {
      const server = await ServerProcess.prepare(path.join(folder, 'data'), settings);
      await server.start();
      cleanup.unshift(() => server.kill());
      return server;
    };

    // Ten steps on each server, each of which dies during a response.
    const steps = (from: number) =>
      Array.from({ length: 10 }, (_, i): Script => use({ name: 'look', args: { n: from + i }, id: `c${from + i}` }));
    const [one, two] = [0, 1].map(() =>
      held(
        (call) => call.text('and then '),
        () => undefined,
      ),
    );
    if (!one || !two) throw new Error('unreachable');
    model.script('m', ...steps(0), one.script, ...steps(10), two.script, ...steps(20), say('Done.'));

    const first = await start(traced);
    await first.api.putAgent('agent', { model: { name: 'm' }, ...onTestServer });
    const sessionId = await first.api.createSession('agent');
    const headers = { traceparent: `00-${TRACE}-b7ad6b7169203331-01` };
    const reader = first.api.turn(sessionId, 'go', {}, headers);
    const turnId = await reader.turnId();
    await one.reached;
    const seen = () =>
      collector.spans.filter(({ name, traceId }) => traceId === TRACE && name === 'tools/call look').length;
    await expect.poll(seen).toBe(10);
    await first.kill();
    one.release();
    await reader.done.catch(() => undefined);

    const second = await start(env);
    await two.reached;
    expect(seen()).toBe(10);
    await second.kill();
    two.release();

    const third = await start(traced);
    const end = await third.api.subscribe(sessionId, turnId).end();
    expect(end).toMatchObject({ status: 'done', output: { content: 'Done.' } });
    await expect
      .poll(() => collector.spans.find(({ name, traceId }) => traceId === TRACE && name === 'turn'))
      .toBeDefined();
    await expect.poll(seen).toBe(20);

    // Calls from servers that trace have the trace's header, and calls from the other one have none.
    const told = mcp.calls.map(({ arguments: { n }, headers: { traceparent } }) => [n, traceparent?.split('-')[1]]);
    expect(told).toEqual(Array.from({ length: 30 }, (_, n) => [n, n >= 10 && n < 20 ? undefined : TRACE]));
    // The activities of all runs and servers belong to the one turn.
    const turn = collector.spans.filter(({ name }) => name === 'turn');
    expect(turn).toMatchObject([{ traceId: TRACE, attributes: { 'everturn.turn.id': turnId } }]);
    const activities = collector.spans.filter(({ name }) => name === 'callTool' || name === 'callModel');
    expect(activities.length).toBeGreaterThan(35);
    for (const { traceId, parentSpanId } of activities)
      expect([traceId, parentSpanId]).toEqual([TRACE, turn[0]?.spanId]);
    // The runs that have continued as new.
    const archiving = collector.spans.filter(({ name }) => name === 'archiveTurn');
    expect(archiving.length).toBeGreaterThan(1);
    for (const { attributes } of archiving)
      expect(attributes).toMatchObject({ 'everturn.turn.id': turnId, 'everturn.session.id': sessionId });
    const log = await third.api.list<{ type: string }>(`/v1/agents/sessions/${sessionId}/turns/${turnId}/events`);
    expect(log.filter(({ type }) => type === 'tool.response').length).toBe(30);
    await expectReplays(loadConfig({ ...process.env, ...env }));
  } finally {
    for (const step of cleanup) await step();
  }
}, 240_000);
