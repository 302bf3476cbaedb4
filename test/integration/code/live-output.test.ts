import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { AgentSpec } from '../../../src/spec/agent-spec.ts';
import { folded, type EventReader, type Frame } from '../../support/api-client.ts';
import { FREE, startCodeServer } from '../../support/code-server.ts';
import { answersTo, cell, responsesIn } from '../../support/code-turns.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { eventually } from '../../support/eventually.ts';
import { GATE, gatedBy, GATED, openGate } from '../../support/gated-cells.ts';
import { deltasIn, outputIn, untilOutput } from '../../support/live-output.ts';
import { TestMcpServer } from '../../support/mcp-server.ts';
import { say } from '../../support/scripted-model.ts';
import type { Chat, TestServer } from '../../support/test-server.ts';

let server: TestServer;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  server = await startCodeServer();
});
afterAll(() => server.stop());

/** A turn whose reader gets all events. */
function fullTurn(chat: Chat, input: unknown = [{ type: 'user.message', content: 'go' }]): EventReader {
  return server.api.stream(`${chat.path}/turns?view=full`, { input });
}

test('readers get the output of a cell before it ends, also those that connect meanwhile', async () => {
  const chat = await server.chat({ spec: GATED });
  const code = `import sys\nprint("first")\n${GATE('a')}\nprint("second", file=sys.stderr)\n${GATE('b')}`;
  chat.script(gatedBy(code, 'a', 'b'), say('done'));
  const reader = fullTurn(chat);
  await untilOutput(reader, 'first\n');
  const turn = `${chat.path}/turns/${await reader.turnId()}`;
  const late = server.api.stream(`${turn}/subscribe?view=full`, {});
  const other = server.api.stream(`${turn}/subscribe`, {});
  await untilOutput(late, 'first\n');
  await openGate(server.api, chat.path, reader, 'a');
  for (const one of [reader, late]) await untilOutput(one, 'first\nsecond\n');
  await openGate(server.api, chat.path, reader, 'b');
  const [all, fromLate, fromOther] = await Promise.all([reader.done, late.done, other.done]);
  const response = responsesIn(all).find(({ execution }) => execution);
  expect(response?.content).toBe('first\nsecond');
  for (const deltas of [deltasIn(all), deltasIn(fromLate)]) {
    expect(deltas.map(({ reset }) => reset === true)).toEqual(deltas.map((_, i) => i === 0));
    // A line may be sent in several pieces.
    const channels = deltas.map(({ channel }) => channel);
    expect(channels.filter((channel, i) => channel !== channels[i - 1])).toEqual(['stdout', 'stderr']);
    const textOn = (on: string) => deltas.flatMap(({ channel, content }) => (channel === on ? content : [])).join('');
    expect([textOn('stdout'), textOn('stderr')]).toEqual(['first\n', 'second\n']);
    for (const { id, tool_call_id: call } of deltas) expect([id, call]).toEqual([response?.id, response?.tool_call_id]);
  }
  // Clients that do not support the type would fail.
  expect(deltasIn(fromOther)).toEqual([]);
  const listed = await server.api.list<Frame>(`${turn}/events?view=full`);
  expect(listed.map(({ type }) => type)).not.toContain('tool.response.delta');
  expect(listed.find(({ id }) => id === response?.id)).toMatchObject({ type: 'tool.response' });
  const { id, content } = response ?? {};
  expect(folded(all)).toContainEqual(expect.objectContaining({ id, content }));
});

test('a stream that is cut within an output continues with all of it', async () => {
  const chat = await server.chat({ spec: GATED });
  chat.script(gatedBy(`print("first")\n${GATE('a')}\nprint("second")\n${GATE('b')}`, 'a', 'b'), say('done'));
  const cut = fullTurn(chat);
  const { sequence_number: after } = await untilOutput(cut, 'first\n');
  const turnId = await cut.turnId();
  cut.close();
  const path = `${chat.path}/turns/${turnId}/subscribe?view=full`;
  const resumed = server.api.stream(path, { after_sequence_number: after });
  await untilOutput(resumed, 'first\n');
  const whole = server.api.stream(path, {});
  await openGate(server.api, chat.path, whole, 'a');
  await untilOutput(resumed, 'first\nsecond\n');
  await openGate(server.api, chat.path, whole, 'b');
  const response = responsesIn(await resumed.done).find(({ execution }) => execution);
  expect(response?.content).toBe('first\nsecond');
});

test('a flood is bounded for readers, and whole in the result', async () => {
  const spec: Partial<AgentSpec> = { code_actions: { approvals: 'allow', results: { inline_bytes: 4096 } } };
  const chat = await server.chat({ spec });
  const flood = 'import sys\nfor i in range(20_000):\n  print("o" * 50)\n  print("e" * 50, file=sys.stderr)';
  chat.script(cell(flood), say('done'));
  const frames = await fullTurn(chat).done;
  const text = outputIn(frames);
  expect(text).toMatch(/^o{50}\ne{50}\n[^]*\n\[everturn\] the rest comes with the result\n/);
  expect(text.length).toBeLessThan(4096 + 200);
  expect(deltasIn(frames).length).toBeLessThan(250);
  expect(responsesIn(frames)[0]).toMatchObject({ outcome: 'succeeded', execution: { output_bytes: 2_040_000 } });
});

test('code that waits for a person shows what it has printed in both turns', async () => {
  const gates = new Map(['one', 'two'].map((name) => [name, Promise.withResolvers<void>()]));
  const held = new Set<unknown>();
  // A call that is held for long is repeated, and waits for the same gate.
  const hold = async ({ at }: Record<string, unknown>) => {
    held.add(at);
    await gates.get(String(at))?.promise;
    return 'held';
  };
  const inputSchema = { type: 'object' as const, properties: { at: { type: 'string' } } };
  const annotations = { readOnlyHint: true };
  const lab = await TestMcpServer.start({
    tools: [
      { name: 'add', inputSchema, annotations: { destructiveHint: true }, handler: () => 'added' },
      { name: 'hold', inputSchema, annotations, handler: hold },
    ],
  });
  onTestFinished(() => lab.stop());
  const tools = { allowed_callers: ['code' as const], require_approval_for_tools: ['@destructive'] };
  const chat = await server.chat({
    spec: { ...FREE, mcp_servers: [{ type: 'inline', name: 'lab', url: lab.url, ...tools }] },
  });
  const code =
    'print("before")\nhold.run(hold.Params(at="one"))\nprint(add.run(add.Params()))\nheld = hold.run(hold.Params(at="two"))';
  chat.script(cell(`from mcptools.lab import add, hold\n${code}`), say('done'));
  const first = fullTurn(chat);
  await untilOutput(first, 'before\n');
  await eventually(() => expect(held).toContain('one'));
  gates.get('one')?.resolve();
  const asked = await first.done;
  expect(asked.at(-1)?.type).toBe('turn.done');
  const second = fullTurn(chat, answersTo(asked));
  await untilOutput(second, 'before\nadded\n');
  await eventually(() => expect(held).toContain('two'));
  gates.get('two')?.resolve();
  const answered = await second.done;
  const response = responsesIn(answered).find(({ execution }) => execution);
  expect(response?.content).toBe('before\nadded');
  expect(deltasIn(answered)[0]).toMatchObject({
    id: response?.id,
    reset: true,
    content: expect.stringMatching(/^before\n/),
  });
  // A client that holds both turns keeps what each has sent under its own id.
  expect(deltasIn(asked)[0]?.id).not.toBe(response?.id);
});
