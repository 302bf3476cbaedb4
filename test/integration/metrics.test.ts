import path from 'node:path';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { Turns } from '../../src/catalog/turns.ts';
import { freePort } from '../../src/lib/processes.ts';
import { ApiClient } from '../support/api-client.ts';
import { eventually } from '../support/eventually.ts';
import { Exposition } from '../support/prometheus.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { onTestServer, startTestServer, type TestServer } from '../support/test-server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startTestServer({
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' },
        { name: 'pay', handler: () => 'paid' },
        { name: 'erase', annotations: { destructiveHint: true }, handler: () => 'erased' },
      ],
    },
  });
});
afterAll(() => server.stop());

async function scrape({ url } = server.api): Promise<Exposition> {
  const response = await fetch(`${url}/metrics`);
  expect([response.status, response.headers.get('content-type')]).toEqual([
    200,
    'text/plain; version=0.0.4; charset=utf-8',
  ]);
  return new Exposition(await response.text());
}

/** The metrics in the alerts of `docs/operations.md`, with the labels that they must have. */
async function alertSelectors(): Promise<{ name: string; labels: Record<string, string> | undefined }[]> {
  const guide = await readFile(new URL('../../docs/operations.md', import.meta.url), 'utf8');
  const [, alerts = ''] = /^## Alerts$(.*?)^## /ms.exec(guide) ?? [];
  const selectors = alerts.matchAll(/((?:everturn|temporal)_\w+)(?:\{(\w+)="(\w+)"\})?/g);
  const named = [...selectors].map(([, name = '', label, value]) => ({
    name,
    labels: label === undefined || value === undefined ? undefined : { [label]: value },
  }));
  // It exists after the first failure: see the turn in `turn-inspect.test.ts` whose code does not fit.
  return named.filter(({ name }) => name !== 'temporal_workflow_task_execution_failed_total');
}

test('the metrics show a session with a retry, an unknown outcome and an approval', async () => {
  const chat = await server.chat({
    scripts: [
      (call) => call.fail(503, 'not now', { 'retry-after-ms': '1' }),
      use({ name: 'look' }, { name: 'pay' }),
      use({ name: 'erase', id: 'e1' }),
      say('Done.'),
    ],
    spec: onTestServer,
  });
  server.mcp.faults.set('tools/call', 'swallow');
  const first = chat.turn('go');
  // The read-only call is repeated until it succeeds; the other one is not.
  await first.next((frame) => frame.type === 'tool.response' && frame.outcome === 'unknown_outcome');
  server.mcp.faults.clear();
  expect(await first.end()).toMatchObject({ status: 'done', required_actions: [{ type: 'tool.approval_required' }] });
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'e1', approval: { status: 'allow' } };
  expect(await chat.turn([approval]).end()).toMatchObject({ status: 'done' });

  // The archive determines the outcomes of turns and tool calls.
  const metrics = await eventually(async () => {
    const scraped = await scrape();
    expect(scraped.value('everturn_turns_ended_total', { status: 'done' })).toBe(1);
    // A scrape omits what Temporal, or its SDK, does not say in time.
    expect(scraped.all('everturn_stuck_workflows')).not.toEqual([]);
    expect([...scraped.families.keys()].filter((name) => name.startsWith('temporal_'))).not.toEqual([]);
    return scraped;
  });
  expect(metrics.value('everturn_turns_started_total')).toBe(2);
  expect(metrics.value('everturn_speculative_calls_total', { outcome: 'claimed' })).toBe(1);
  expect(metrics.value('everturn_turns_ended_total', { status: 'action_required' })).toBe(1);
  expect(metrics.value('everturn_turns_ended_total', { status: 'error' })).toBe(0);
  expect(metrics.value('everturn_tool_calls_ended_total', { outcome: 'unknown_outcome' })).toBe(1);
  expect(metrics.value('everturn_tool_calls_ended_total', { outcome: 'succeeded' })).toBe(2);
  expect(metrics.value('everturn_model_tokens_total', { type: 'output' })).toBe(15);
  expect(metrics.value('everturn_retries_total', { activity: 'callModel', reason: 'overloaded' })).toBe(1);
  expect(metrics.value('everturn_retries_total', { activity: 'callTool', reason: 'NoAnswer' })).toBeGreaterThan(0);
  expect(metrics.value('everturn_model_call_duration_seconds_count', { outcome: 'answered' })).toBe(3);
  expect(metrics.value('everturn_model_call_duration_seconds_count', { outcome: 'overloaded' })).toBe(1);
  const tools = { server: 'test' };
  expect(metrics.value('everturn_tool_call_duration_seconds_count', { ...tools, outcome: 'result' })).toBe(2);
  expect(metrics.value('everturn_tool_call_duration_seconds_count', { ...tools, outcome: 'unknown' })).toBeGreaterThan(
    1,
  );
  expect(metrics.value('everturn_first_delta_seconds_count')).toBe(2);
  // From the model to its tools and back, without intended waits and the time between turns.
  expect(metrics.value('everturn_step_overhead_seconds_count')).toBeGreaterThanOrEqual(2);
  const turns = { method: 'POST', route: '/v1/agents/sessions/:session_id/turns', status: '200' };
  expect(metrics.value('everturn_http_requests_total', turns)).toBe(2);
  expect(metrics.value('everturn_http_request_duration_seconds_count', { route: turns.route })).toBeUndefined();
  expect(metrics.value('everturn_http_request_duration_seconds_count', { route: '/metrics' })).toBeGreaterThan(0);

  // Temporal's metrics and those of the process are in the same response.
  expect(metrics.all('temporal_workflow_task_queue_poll_succeed_total').length).toBeGreaterThan(0);
  expect(metrics.families.get('temporal_workflow_task_execution_latency_seconds')).toMatchObject({ type: 'histogram' });
  expect(metrics.value('process_resident_memory_bytes')).toBeGreaterThan(1e7);
  expect(metrics.value('everturn_info')).toBe(1);

  // The metrics that the operators' alerts use exist.
  const alerts = await alertSelectors();
  expect(alerts.length).toBeGreaterThan(10);
  for (const { name, labels } of alerts) {
    expect([...metrics.families.keys()], name).toContain(name.replace(/_bucket$/, ''));
    if (labels) expect(metrics.all(name, labels).length, `${name} ${JSON.stringify(labels)}`).toBeGreaterThan(0);
  }

  // No label has values that grow without bound.
  const ids = /(?:ses|turn|msg|evt|call|req)_[0-9a-z]{26}/;
  const ours = metrics.samples.filter(({ name }) => name.startsWith('everturn_'));
  for (const { labels } of ours) for (const value of Object.values(labels)) expect(value).not.toMatch(ids);
  expect(ours.length).toBeLessThan(500);
});

test('running turns, readers and turns that wait for the archive are reported as they are now', async () => {
  const model = held(
    (call) => call.text('I am '),
    (call) => call.text('here').finish(),
  );
  const chat = await server.chat({ scripts: [model.script] });
  // The stores are not queried at every scrape, the archive takes its time, and so does Temporal until it lists an end.
  const before = await eventually(async () => {
    const scraped = await scrape();
    const gauges = ['everturn_archive_backlog_turns', 'everturn_turns_running', 'everturn_readers'];
    expect(gauges.map((name) => scraped.value(name))).toEqual([0, 0, 0]);
    return scraped;
  });
  expect(before.value('everturn_archive_backlog_oldest_seconds')).toBe(0);
  expect(before.value('everturn_stuck_workflows', { type: 'turn' })).toBe(0);
  expect(before.value('everturn_stuck_workflows', { type: 'session' })).toBe(0);
  expect(before.value('everturn_stuck_workflows', { type: 'removal' })).toBe(0);
  const key = { 'idempotency-key': 'once' };
  const reader = chat.turn('go', {}, key);
  await reader.says('I am');
  expect((await scrape()).value('everturn_readers')).toBe(1);
  await expect.poll(async () => (await scrape()).value('everturn_turns_running')).toBe(1);
  model.release();
  await reader.done;
  await expect.poll(async () => (await scrape()).value('everturn_readers')).toBe(0);

  // A repetition gets the earlier response, and starts nothing.
  const again = chat.turn('go', {}, key);
  await again.done;
  expect(await again.turnId()).toBe(await reader.turnId());
  const after = await scrape();
  for (const name of ['everturn_first_delta_seconds_count', 'everturn_turns_started_total']) {
    expect(after.value(name)).toBe((before.value(name) ?? 0) + 1);
  }
});

test('a catalog that hangs does not block the scrape, which omits what only the catalog has', async () => {
  const workload = [
    'everturn_turns_running',
    'everturn_archive_backlog_turns',
    'everturn_archive_backlog_oldest_seconds',
    'everturn_stuck_workflows',
  ];
  const said = async () => {
    const metrics = await scrape();
    return workload.filter((name) => metrics.all(name).length > 0);
  };
  await expect.poll(said).toEqual(workload);
  const late = Promise.withResolvers<[]>();
  const never = new Promise<[]>(() => undefined);
  const unarchived = vi.spyOn(Turns.prototype, 'unarchived').mockReturnValue(never).mockReturnValueOnce(late.promise);
  onTestFinished(() => unarchived.mockRestore());
  // The stores are not queried at every scrape.
  await expect.poll(said).toEqual([]);
  // A late result is not used as the current state.
  late.resolve([]);
  expect(await said()).toEqual([]);
});

test('a path without a route is counted, without the path', async () => {
  for (const path of ['/v1/agents/nothing/here', '/wp-login.php', '/a', '/b']) {
    expect((await server.api.send('GET', path)).status).toBe(404);
  }
  const metrics = await scrape();
  expect(metrics.value('everturn_http_requests_total', { route: 'none', status: '404' })).toBe(4);
});

test('where keys are required the metrics are for admins, or at their own port', async () => {
  const port = await freePort();
  const keyed = await startTestServer({
    env: {
      EVERTURN_API_KEYS: 'ann:admin=key-of-ann,bob=key-of-bob,eve:approver=key-of-eve',
      EVERTURN_METRICS_PORT: String(port),
    },
  });
  try {
    const statusFor = async (key?: string): Promise<number> => {
      const headers = key === undefined ? undefined : { authorization: `Bearer ${key}` };
      const response = await fetch(`${keyed.api.url}/metrics`, { ...(headers && { headers }) });
      await response.text();
      return response.status;
    };
    expect(await Promise.all([undefined, 'unknown', 'key-of-bob', 'key-of-eve', 'key-of-ann'].map(statusFor))).toEqual([
      401, 401, 403, 403, 200,
    ]);
    // The separate port has them without a key, and nothing else.
    const own = new ApiClient(`http://127.0.0.1:${port}`);
    // A dependency that does not answer in time is taken for one that does not work.
    const isWorkerUp = async () => (await scrape(own)).value('everturn_up', { dependency: 'worker' });
    await expect.poll(isWorkerUp).toBe(1);
    await expect.poll(() => own.get('/readyz')).toMatchObject({ status: 'ready' });
    expect(
      (await own.send('GET', '/v1/agents/sessions', undefined, { authorization: 'Bearer key-of-ann' })).status,
    ).toBe(404);

    // Details of internal errors are for operators: other callers get a general message, and the log has the details.
    const blobs = path.join(keyed.dataDir, 'blobs');
    await rm(blobs, { recursive: true, force: true });
    await writeFile(blobs, 'not a folder');
    const unready = async ({ url }: { url: string }) =>
      (await new ApiClient(url).send('GET', '/readyz')).body.problems?.join();
    await expect.poll(() => unready(keyed.api)).toMatch(/^the blob store cannot be written \(since \S+Z\)$/);
    await expect.poll(() => unready(own)).toMatch(/^the blob store cannot be written: .*EEXIST.* \(since \S+Z\)$/);
  } finally {
    await keyed.stop();
  }
});

test('an unavailable Redis is reported and does not block any response', async () => {
  const redis = await TcpProxy.start('127.0.0.1:9');
  const apart = await startTestServer({ env: { REDIS_URL: `redis://${redis.address}` } });
  try {
    // A dependency that does not answer in time is taken for one that does not work.
    await expect
      .poll(() => apart.api.get('/readyz'))
      .toEqual({
        status: 'ready',
        problems: [],
        warnings: [expect.stringMatching(/^Redis cannot be reached: .* \(since .*Z\)$/)],
      });
    const up = async () => {
      const metrics = await scrape(apart.api);
      return Object.fromEntries(metrics.all('everturn_up').map(({ labels, value }) => [labels['dependency'], value]));
    };
    await expect.poll(up).toEqual({ redis: 0, catalog: 1, blobs: 1, temporal: 1, worker: 1 });
    expect((await apart.chat().then((chat) => chat.turn('hi').end())).status).toBe('done');
  } finally {
    await apart.stop();
    await redis.stop();
  }
});
