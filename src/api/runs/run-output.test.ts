import { expect, test } from 'vitest';
import { modelMessage } from '../../../test/support/model-message.ts';
import { turnCreated } from '../../core/turn.ts';
import type { ToolCall } from '../../core/records/calls.ts';
import type { LogRecord } from '../../core/records/log.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import type { ToolResponse } from '../../core/records/results.ts';
import type { ModelFailed, TurnDone, TurnOutcome } from '../../core/records/turn.ts';
import { LOST_RECORD } from '../../core/lost-record.ts';
import { FIRST_SECTION, storedSections } from '../../core/sections.ts';
import { NO_TOTALS } from '../../core/turn-totals.ts';
import { turnStart } from '../../../test/support/random-turn.ts';
import { loadFiles } from './load-files.ts';
import { RunOutput } from './run-output.ts';
import { decodeSignature } from './signature.ts';
import { run as runSchema, type RunHeader, type RunItem } from './wire/run.ts';
import { OWNER } from '../../../test/support/readers.ts';

const AT = '2026-11-23T08:00:00.000Z';
const HEADER: RunHeader = {
  id: 'run_01jd0000000000000000000000',
  object: 'run',
  agent_name: 'agent',
  created_at: AT,
  metadata: {},
};
const USAGE = { inputTokens: 11, outputTokens: 7, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 };

const CREATED: LogRecord = turnCreated(turnStart({ createdAt: AT }));

const ROUTES = {
  server: { to: 'server', effect: 'once', approval: false, callHash: 'h' },
  approval: { to: 'server', effect: 'once', approval: true, callHash: 'h' },
  client: { to: 'client' },
  answered: { to: 'answered' },
} as const;

function call(id: string, args = '{"q":1}', route: keyof typeof ROUTES = 'server'): ToolCall {
  return { id, name: 'look', arguments: args, info: { type: 'system', name: 'look' }, route: ROUTES[route] };
}

function message(fields: Partial<ModelMessage> = {}): ModelMessage {
  return modelMessage({ at: AT, usage: USAGE, ...fields });
}

function response(toolCallId: string, fields: Partial<ToolResponse> = {}): ToolResponse {
  const base = { kind: 'tool.response', id: 'evt_1', at: AT, threadId: 'main', outcome: 'succeeded' } as const;
  return { ...base, toolCallId, content: `result of ${toolCallId}`, ...fields };
}

function asked(kind: 'tool.approval_required' | 'tool.response_required', toolCallId: string): LogRecord {
  const needs = kind === 'tool.approval_required' ? 'approval' : 'response';
  const source = { turnId: 'turn_1', messageId: 'msg_1', stamp: 's', index: 0 };
  return {
    kind,
    id: 'evt_1',
    at: AT,
    threadId: 'main',
    calls: [{ threadId: 'main', toolCallId, needs, source }],
  };
}

const paused: LogRecord = { kind: 'turn.paused', id: 'evt_1', at: AT, reason: 'action' };

function done(end: TurnOutcome): TurnDone {
  return { kind: 'turn.done', id: 'evt_9', at: AT, end, ...NO_TOTALS, waitedMs: 0, workedMs: 0 };
}

const DONE = done({ status: 'done', output: null, requiredActions: [] });

/** The run after these records, checked against its schema. */
function runOf(...records: LogRecord[]) {
  const output = new RunOutput({ maxTurns: 3, actionTimeoutSeconds: 60 });
  for (const record of [CREATED, ...records]) output.feed(record);
  const run = output.run(HEADER, OWNER);
  expect(runSchema.parse(run)).toEqual(run);
  return run;
}

test('a call and its result are items in both shapes, before the answer', () => {
  const run = runOf(
    message({ toolCalls: [call('call_1', '{"city":"Bonn"}')] }),
    response('call_1', { content: '21' }),
    message({ content: 'It is 21 degrees.', model: 'gpt', usage: { ...USAGE, cacheReadTokens: 4 } }),
    DONE,
  );
  expect(run).toEqual({
    ...HEADER,
    status: 'completed',
    content: [{ type: 'text', text: 'It is 21 degrees.' }],
    output: [
      {
        type: 'model',
        id: 'item_01jd0000000000000000000000_0',
        created_at: AT,
        content: [
          {
            type: 'tool-call',
            tool_call_id: 'call_1',
            tool_name: 'look',
            args: { city: 'Bonn' },
            call: { type: 'function', name: 'look', args: { city: 'Bonn' } },
          },
        ],
        usage: { input_tokens: 11, output_tokens: 7 },
        finish_reason: 'tool_calls',
      },
      {
        type: 'tool',
        id: 'item_01jd0000000000000000000000_1',
        created_at: AT,
        tool_call_id: 'call_1',
        tool_name: 'look',
        input: { city: 'Bonn' },
        output: [{ type: 'text', text: '21' }],
        is_error: false,
        status: 'completed',
        outcome: 'succeeded',
        operation_id: 'turn_01jd0000000000000000000000/call_1',
      },
      {
        type: 'model',
        id: 'item_01jd0000000000000000000000_2',
        created_at: AT,
        content: [{ type: 'text', text: 'It is 21 degrees.' }],
        usage: { input_tokens: 11, output_tokens: 7, input_tokens_details: { cached_text_tokens: 4 } },
        model: 'gpt',
        finish_reason: 'stop',
      },
    ],
    completed_at: AT,
    turns: 2,
    usage: { input_tokens: 22, output_tokens: 14, input_tokens_details: { cached_text_tokens: 4 } },
    cost: null,
    unreported_attempts: 0,
  });
});

test('the items of calls are in the order of the calls, each once those before it are complete', () => {
  const output = new RunOutput({ maxTurns: 3, actionTimeoutSeconds: 60 });
  const idsAfter = (record: LogRecord) =>
    output.feed(record).map((item) => (item.type === 'tool' ? item.tool_call_id : item.type));
  output.feed(CREATED);
  expect(idsAfter(message({ toolCalls: [call('a'), call('b'), call('c')] }))).toEqual(['model']);
  expect(idsAfter(response('b'))).toEqual([]);
  expect(idsAfter(response('a'))).toEqual(['a', 'b']);
  expect(idsAfter(response('c'))).toEqual(['c']);
});

test.each([
  ['[1]', {}, '[1]'],
  ['{"a":', {}, '{"a":'],
  ['', {}, undefined],
  [' ', {}, undefined],
  ['{"a":[1]}', { a: [1] }, undefined],
])('arguments %j of a model are %j', (text, args, raw) => {
  const { output } = runOf(message({ toolCalls: [call('a', text, 'answered')] }), response('a', { outcome: 'failed' }));
  expect(output[0]).toMatchObject({ content: [{ args, call: { args }, ...(raw && { raw_args: raw }) }] });
  expect(output[1]).toMatchObject({ input: args });
  expect(output[1]).not.toHaveProperty('operation_id');
});

test('a call whose result was recorded with its message was an operation', () => {
  const ran = { ...call('a'), route: { to: 'answered', ran: true } } as const;
  const { output } = runOf(message({ toolCalls: [ran] }), response('a'));
  expect(output[1]).toMatchObject({ operation_id: 'turn_01jd0000000000000000000000/a' });
});

test.each([
  ['failed', 'failed', ['no']],
  ['denied', 'failed', ['The user denied this tool call. Reason: no']],
  ['expired', 'cancelled', []],
  ['cancelled', 'cancelled', []],
  ['unknown_outcome', 'failed', ['no']],
] as const)('a call that is %s is shown as %s', (outcome, status, texts) => {
  const { output } = runOf(message({ toolCalls: [call('a')] }), response('a', { outcome, content: 'no' }));
  const parts = texts.map((text) => ({ type: 'text', text }));
  expect(output[1]).toMatchObject({ outcome, status, is_error: true, output: parts });
});

test('nothing that was given with the request is in the output', () => {
  const given = message({ isGiven: true, toolCalls: [call('a'), call('b')] });
  const run = runOf(given, response('a', { isGiven: true }), response('b'));
  expect(run).toMatchObject({ output: [{ tool_call_id: 'b' }], turns: 0, usage: null, content: [] });
});

test('a given answer is the content of its run', () => {
  const run = runOf(message({ isGiven: true, content: 'It is so.' }), DONE);
  expect(run).toMatchObject({ status: 'completed', output: [], content: [{ text: 'It is so.' }], turns: 0 });
});

test('a sum with an unknown price is unknown, and the attempts without usage are counted', () => {
  const priced = (costInUsd: number) => message({ content: 'a', usage: { ...USAGE, costInUsd } });
  expect(runOf(priced(0.1), priced(0.2)).cost).toBe(0.3);
  expect(runOf(priced(0.1), message({ content: 'a' }), priced(0.2)).cost).toBeNull();
  const lost = message({
    finishReason: 'error',
    usage: { ...USAGE, inputTokens: 0, outputTokens: 0, unreportedAttempts: 2 },
  });
  expect(runOf(priced(0), lost)).toMatchObject({ cost: 0, turns: 2, unreported_attempts: 2, output: [{ cost: 0 }] });
});

test('the prices of the request are those of its model, and precede the cost that the server has', () => {
  const prices = { input_cost_per_text_token: 1, output_cost_per_text_token: 2 };
  const costOf = (fields: Partial<ModelMessage>, models = ['acme/gpt']) => {
    const output = new RunOutput({ maxTurns: 3, actionTimeoutSeconds: 60, pricing: { models, prices } });
    output.feed(
      message({ content: 'a', provider: 'acme', model: 'gpt', usage: { ...USAGE, costInUsd: 0.5 }, ...fields }),
    );
    return output.run(HEADER, OWNER).cost;
  };
  expect(costOf({})).toBe(25);
  expect(costOf({ provider: 'other' })).toBe(0.5);
  expect(costOf({ model: 'gpt-2', usage: USAGE })).toBeNull();
  expect(costOf({ provider: 'default', model: 'acme/gpt', usage: USAGE })).toBe(25);
  // A fallback may be the same model at another provider.
  for (const [provider, cost] of [['default', 25] as const, ['acme', 0.5] as const]) {
    expect(costOf({ provider }, ['gpt', 'acme/gpt'])).toBe(cost);
    expect(costOf({ provider }, ['acme/gpt', 'gpt'])).toBe(25.5 - cost);
  }
});

test('a message of which nothing arrived is no item, and no model call if none was made', () => {
  const { usage: _, ...nothing } = message({ finishReason: 'cancelled' });
  const run = runOf(nothing, done({ status: 'cancelled', reason: 'client-cancelled' }));
  expect(run).toMatchObject({ status: 'cancelled', output: [], content: [], turns: 0 });
});

test('a run waits for its client and for approvals, and shows what remains', () => {
  const records = [
    message({ toolCalls: [call('a', '{"q":"x"}', 'client'), call('b', '{"op":"y"}', 'approval'), call('c')] }),
    response('c'),
    asked('tool.approval_required', 'b'),
    asked('tool.response_required', 'a'),
    paused,
  ];
  expect(runOf(...records.slice(0, -1)).status).toBe('running');
  const run = runOf(...records);
  expect(run).toMatchObject({ status: 'requires_action', output: [{ type: 'model' }], content: [{}, {}, {}] });
  const place = { tool_name: 'look', thread_id: 'main' };
  expect(run.required_action).toEqual({
    turn: 1,
    expires_at: '2026-11-23T08:01:00.000Z',
    refresh: [],
    tool_calls: [{ ...place, tool_call_id: 'a', args: { q: 'x' }, operation_id: 'turn_01jd0000000000000000000000/a' }],
    approvals: [
      {
        ...place,
        tool_call_id: 'b',
        args: { op: 'y' },
        action: {
          kind: 'approval',
          tool: { server: null, name: 'look' },
          requested_at: AT,
          remaining: 1,
          may_edit_arguments: true,
        },
      },
    ],
  });
  const answered = runOf(...records, response('a'));
  expect(answered.required_action).toMatchObject({ tool_calls: [], approvals: [{ tool_call_id: 'b' }] });
  const decided = { kind: 'tool.decided', id: 'evt_1', at: AT, threadId: 'main', toolCallId: 'b' } as const;
  const vote = (remaining: number): LogRecord => ({ ...decided, decision: 'allow', remaining });
  expect(runOf(...records, response('a'), vote(1)).status).toBe('requires_action');
  expect(runOf(...records, response('a'), vote(0)).status).toBe('running');
});

test('an approved call whose arguments a person has changed shows the arguments with which it ran', () => {
  const { output } = runOf(message({ toolCalls: [call('a')] }), response('a', { arguments: '{"q":2}', content: 'ok' }));
  const text = 'The user changed the arguments of this tool call. It ran with: {"q":2}\n\nok';
  expect(output[1]).toMatchObject({ input: { q: 2 }, output: [{ text }] });
});

test('a run that ends has an item for every call', () => {
  const { output } = runOf(
    message({ toolCalls: [call('a'), call('b'), call('c')] }),
    response('b'),
    response('a', { outcome: 'failed', noResult: 'unreachable' }),
    done({ status: 'error', message: 'A tool call has no result.', code: 'tool_failed' }),
  );
  const calls = output.slice(1).map((item) => (item as RunItem & { type: 'tool' }).status);
  expect(calls).toEqual(['failed', 'completed', 'cancelled']);
});

const failed = (code: 'iteration_limit' | 'answer_misfit' | 'tool_failed', text: string): TurnDone =>
  done({ status: 'error', message: text, code });
const failedModel = (modelFailure: ModelFailed, text: string): TurnDone =>
  done({ status: 'error', message: text, code: 'model_failed', modelFailure });
const withCall = message({ toolCalls: [call('a')] });

test.each<[string, LogRecord[], object]>([
  [
    'the limit of model calls',
    [message({ content: 'a' }), failed('iteration_limit', 'x')],
    {
      type: 'max_turns_exceeded',
      name: 'AgentMaxTurnsExceededError',
      message: 'The maximum number of turns (3) has been exceeded.',
    },
  ],
  [
    'answers that do not fit',
    [message({ content: 'a' }), failed('answer_misfit', 'it does not fit')],
    { type: 'invariant_error', name: 'AgentInvariantError', message: 'it does not fit' },
  ],
  [
    'a provider that rejects the request',
    [
      message({ finishReason: 'error', provider: 'openai' }),
      failedModel({ kind: 'bad_request', status: 400 }, 'no such thing'),
    ],
    {
      type: 'language_model_error',
      name: 'AgentLanguageModelError',
      message: 'no such thing',
      cause: { type: 'status_code', status_code: 400, message: 'no such thing', provider: 'openai' },
    },
  ],
  [
    'a provider that cannot be reached',
    [message({ finishReason: 'error' }), failedModel({ kind: 'connection' }, 'the model cannot be reached')],
    { type: 'language_model_error', cause: { type: 'network' } },
  ],
  [
    'a refusal',
    [message({ refusal: 'I will not.' }), DONE],
    { type: 'language_model_error', cause: { type: 'refusal', message: 'I will not.' } },
  ],
  [
    'an answer without content',
    [message(), DONE],
    { type: 'invariant_error', message: 'No content in the assistant message.' },
  ],
  [
    'an unknown tool',
    [withCall, response('a', { outcome: 'failed', noResult: 'unknown_tool' }), failed('tool_failed', 'x')],
    { type: 'invariant_error', message: 'Tool look not found in agent' },
  ],
  [
    'a server that cannot be reached',
    [
      withCall,
      response('a', { outcome: 'failed', noResult: 'unreachable', content: 'gone' }),
      failed('tool_failed', 'x'),
    ],
    {
      type: 'tool_execution_error',
      name: 'AgentToolExecutionError',
      cause: { type: 'unreachable', message: 'gone', tool_call_id: 'a', tool_name: 'look' },
    },
  ],
  [
    'a call with an unknown outcome',
    [withCall, response('a', { outcome: 'unknown_outcome' }), failed('tool_failed', 'x')],
    { type: 'tool_execution_error', cause: { type: 'unknown_outcome' } },
  ],
  [
    'an answer that did not come in time',
    [withCall, response('a', { outcome: 'expired' }), done({ status: 'error', message: 'too late' })],
    { type: 'action_expired', name: 'AgentTimeoutError', message: 'too late' },
  ],
  [
    'the time limit',
    [done({ status: 'cancelled', reason: 'server-execution-timeout' })],
    { type: 'timeout', name: 'AgentTimeoutError' },
  ],
  [
    'an operator who stops it',
    [done({ status: 'cancelled', reason: 'abandoned' })],
    { type: 'internal_error', name: 'AgentError' },
  ],
  ['a fault', [done({ status: 'error', message: 'broken' })], { type: 'internal_error', message: 'broken' }],
])('a run fails because of %s', (_, records, error) => {
  const run = runOf(...records);
  expect(run.status).toBe('failed');
  expect(run.error).toMatchObject(error);
});

test('a structured answer is a value, too', () => {
  const misfit = message({ content: '{}', structured: { fits: false, problem: 'a is missing' } });
  const answer = message({ content: '{"a":1}', structured: { fits: true } });
  expect(runOf(misfit, answer, DONE)).toMatchObject({
    output_json: { a: 1 },
    turns: 2,
    content: [{ text: '{"a":1}' }],
  });
});

test('an answer of what its provider did alone is an answer', () => {
  const hosted = { type: 'call' as const, id: 'ws_1', status: 'completed' as const };
  const run = runOf(message({ content: '', ...storedSections([{ ...FIRST_SECTION, hosted }]) }), DONE);
  const content = [{ type: 'tool-call', tool_call_id: 'ws_1', call: { type: 'web_search', status: 'completed' } }];
  expect(run).toMatchObject({ status: 'completed', content, output: [{ type: 'model', content }] });
});

test('the fields of a provider are returned with the part that they belong to', () => {
  const ofCall = { ...call('a'), providerFields: { extra: 1 } };
  const fields = { provider: 'p', model: 'm', providerFields: { blocks: [] } };
  const signed = message({ ...fields, reasoning: 'hm', content: 'so', toolCalls: [ofCall] });
  const decoded = (one: ModelMessage) =>
    (runOf(one).content as { signature?: string }[]).map(({ signature }) => signature && decodeSignature(signature));
  const ofMessage = { provider: 'p', model: 'm', message: { blocks: [] } };
  expect(decoded(signed)).toEqual([ofMessage, undefined, { provider: 'p', model: 'm', call: { extra: 1 } }]);
  expect(decoded({ ...signed, reasoning: '' })).toEqual([undefined, { ...ofMessage, call: { extra: 1 } }]);
  expect(decoded({ ...signed, reasoning: '', toolCalls: [] })).toEqual([ofMessage]);
});

test('images and audio of a result are parts with their content, other files are not', async () => {
  const file = (name: string, mimeType: string) => ({ type: 'file' as const, name, mimeType, bytes: 3 });
  const files = [
    { ...file('a', 'image/png'), blob: 'b1' },
    { ...file('b', 'audio/mpeg'), base64: 'AAAA' },
    { ...file('c', 'application/pdf'), blob: 'b2' },
  ];
  const blobs = { get: async (sessionId: string, blob: string) => Buffer.from(`${sessionId} ${blob}`) };
  const record = await loadFiles(response('a', { content: 'see', files }), { blobs, sessionId: 'ses_1' });
  const { output } = runOf(withCall, record);
  expect(output[1]).toMatchObject({
    output: [
      { type: 'text', text: 'see' },
      { type: 'image', mime_type: 'image/png', data: Buffer.from('ses_1 b1').toString('base64') },
      { type: 'audio', format: 'mp3', data: 'AAAA' },
    ],
  });
});

test('a call whose result may be lost has an unknown outcome, before what follows: no other run repeats it', () => {
  const calling = message({ toolCalls: [call('c1'), call('c2')] });
  const lost = modelMessage({ id: 'msg_lost', at: AT, content: LOST_RECORD, isLost: true });
  const { output } = runOf(calling, lost, response('c2'), message({ content: 'Done.' }), DONE);
  expect(output.map((item) => (item.type === 'tool' ? `${item.tool_call_id} ${item.outcome}` : item.type))).toEqual([
    'model',
    'c1 unknown_outcome',
    'c2 succeeded',
    'model',
  ]);
  const [, first] = runOf(calling, lost, DONE).output;
  expect(first).toMatchObject({ outcome: 'unknown_outcome', operation_id: expect.any(String) });
  expect(runOf(lost, DONE).content).toEqual([{ type: 'text', text: LOST_RECORD }]);
});
