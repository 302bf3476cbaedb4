import { expect, test, vi } from 'vitest';
import type { ToolCall, ToolRoute } from '../../../core/records/calls.ts';
import type { CallOutcome } from '../../../mcp/call-outcome.ts';
import type { AgentSpec } from '../../../spec/agent-spec.ts';
import type { RunOptions } from '../../../tools/tool-kind.ts';
import type { CodeMessage } from './code-message.ts';
import { messageOfCode } from './code-thread-records.ts';
import { DirectCalls } from './direct-calls.ts';

const READS = { to: 'server', effect: 'retry', approval: false, callHash: 'h' } as const;

function call(id: string, route: ToolRoute = READS, name = 'note'): ToolCall {
  const info = { type: 'mcp', serverId: 'lab', serverName: 'lab', name } as const;
  return { id, name, arguments: '{}', info, route };
}

function asked(...toolCalls: ToolCall[]): CodeMessage {
  const place = { id: 'msg_1', at: '', threadId: 'code_1', content: '' };
  return {
    message: messageOfCode({ ...place, toolCalls, finishReason: 'tool_calls' }),
    results: [],
    requested: [],
    asks: false,
  };
}

function directCalls(run: (call: ToolCall, options: RunOptions) => Promise<CallOutcome>): DirectCalls {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- short results are not stored in it
  return new DirectCalls({ mcpTools: { run }, blobs: {} as never, toolTimeoutMs: 1_000 });
}

function place(more: object = {}) {
  const signal = new AbortController().signal;
  const owner = { subjectId: 'ann', draftRoles: null };
  const spec: AgentSpec = { model: { name: 'any' } };
  return { turnId: 'turn_1', sessionId: 'ses_1', owner, spec, stop: signal, ending: signal, ...more };
}

const result = (text: string): CallOutcome => ({ status: 'result', isError: false, content: [{ type: 'text', text }] });

test('calls are run with the operation ids of the turn, and their results are in the order of the message', async () => {
  const later = Promise.withResolvers<CallOutcome>();
  const run = vi.fn((one: ToolCall, { operationId, mayRepeat }: RunOptions) => {
    if (one.id === 'call_1') return later.promise;
    later.resolve(result('first'));
    return Promise.resolve(result(`${operationId} ${String(mayRepeat)}`));
  });
  const refused = call('call_2', { to: 'answered' });
  const message = asked(call('call_1'), refused, call('call_3'));
  const denied = { kind: 'tool.response', at: '', threadId: 'code_1', toolCallId: 'call_2', content: 'no' } as const;
  const ran = await directCalls(run).run({ ...message, results: [{ ...denied, outcome: 'denied' }] }, place());
  expect(ran.message.toolCalls.map(({ route }) => route)).toEqual([
    { to: 'answered', ran: true },
    { to: 'answered' },
    { to: 'answered', ran: true },
  ]);
  expect(ran.results).toMatchObject([
    { toolCallId: 'call_1', outcome: 'succeeded', content: 'first' },
    { toolCallId: 'call_2', outcome: 'denied', content: 'no' },
    { toolCallId: 'call_3', content: 'turn_1/code_1/call_3 true' },
  ]);
  expect(run).toHaveBeenCalledTimes(2);
});

test('calls of an agent whose calls run in sequence do so', async () => {
  let open = 0;
  const most: number[] = [];
  const run = async (): Promise<CallOutcome> => {
    open += 1;
    most.push(open);
    await new Promise(setImmediate);
    open -= 1;
    return result('');
  };
  const both = asked(call('call_1'), call('call_2'));
  await directCalls(run).run(both, place());
  const inSequence = { model: { name: 'any' }, callsInSequence: true };
  await directCalls(run).run(both, place({ spec: inSequence }));
  expect(most).toEqual([1, 2, 1, 1]);
});

test.each<[string, ToolRoute]>([
  ['asks', { ...READS, approval: true }],
  ['may not run again', { ...READS, effect: 'once' }],
  ['is of a server whose calls have an order', { ...READS, order: { server: 'lab' } }],
  ['runs in the sandbox', { ...READS, inSandbox: true }],
])('a message is left to the turn if a call of it %s', (_, route) => {
  const direct = directCalls(() => Promise.reject(new Error('not called')));
  expect(direct.takes(asked(call('call_1'), call('call_2', { to: 'answered' })))).toBe(true);
  expect(direct.takes(asked(call('call_1'), call('call_2', route)))).toBe(false);
});

test.each<[string, () => Promise<CallOutcome>, boolean]>([
  ['needs a connection with state', () => Promise.resolve({ status: 'replaced' }), false],
  ['does not reach its server', () => Promise.resolve({ status: 'not_sent', message: 'refused' }), false],
  ['may not be called', () => Promise.reject(new Error('not allowed')), false],
  ['has no answer', () => Promise.resolve({ status: 'unknown', message: 'cut' }), true],
])('a call that %s is left to the turn, as are those of its tool for a while', async (_, outcome, hasBegun) => {
  const run = vi.fn(outcome);
  const direct = directCalls(run);
  const ran = await direct.run(asked(call('call_1')), place());
  expect(ran.results).toEqual([]);
  expect(ran.message.toolCalls).toEqual([call('call_1', { ...READS, ...(hasBegun && { hasBegun }) })]);
  expect(direct.takes(asked(call('call_2')))).toBe(false);
  expect(direct.takes(asked(call('call_2', READS, 'other')))).toBe(true);
});

test('a server that keeps state for its connections is not called on one of the host', async () => {
  const run = vi.fn((_: ToolCall, options: RunOptions) => Promise.resolve(result(String(options.reliesOn?.size))));
  const { results } = await directCalls(run).run(asked(call('call_1')), place());
  expect(results).toMatchObject([{ content: '1' }]);
});

test('calls of code that is ended are cancelled, and those of a piece that ended are left to the turn', async () => {
  const over = AbortSignal.abort();
  const run = vi.fn((): Promise<CallOutcome> => Promise.resolve({ status: 'unknown', message: 'aborted' }));
  const direct = directCalls(run);
  const ended = await direct.run(asked(call('call_1')), place({ stop: over, ending: over }));
  expect(ended.results).toMatchObject([{ outcome: 'cancelled' }]);
  const left = await direct.run(asked(call('call_1')), place({ ending: over }));
  expect([left.results, left.message.toolCalls]).toEqual([[], [call('call_1')]]);
  expect(run).not.toHaveBeenCalled();
  const stop = new AbortController();
  run.mockImplementation(() => {
    stop.abort();
    return Promise.resolve({ status: 'unknown', message: 'aborted' });
  });
  const cancelled = await direct.run(asked(call('call_2')), place({ stop: stop.signal, ending: stop.signal }));
  expect(cancelled.results).toMatchObject([
    { outcome: 'cancelled', content: 'The tool call was cancelled while it ran.' },
  ]);
});
