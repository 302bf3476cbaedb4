import { expect, test } from 'vitest';
import { modelMessage } from '../../../test/support/model-message.ts';
import { KERNEL } from '../../core/call-order.ts';
import type { ToolCall } from '../../core/records/calls.ts';
import type { UnsequencedRecord } from '../../core/records/log.ts';
import type { ToolResponse } from '../../core/records/results.ts';
import type { Execution } from '../../core/records/sandbox.ts';
import { knownKernel } from './last-cell.ts';

const AT = '2026-11-28T08:00:00.000Z';

function call(id: string, isCell = true): ToolCall {
  const order = isCell && { order: { server: KERNEL } };
  const route = { to: 'server', effect: 'once', approval: false, callHash: 'h', inSandbox: true, ...order } as const;
  return { id, name: 'ipython', arguments: '{}', info: { type: 'system', name: 'ipython' }, route };
}

/** A message with a call in a thread, and its result. */
function ran(execution: Partial<Execution> | undefined, more: Partial<ToolResponse> & { isCell?: boolean } = {}) {
  const { threadId = 'main', outcome = 'succeeded', isCell = true } = more;
  const id = `call_${++calls}`;
  const run = execution && { execution: { exit: 'ok' as const, outputBytes: 0, defined: [], ...execution } };
  const message = modelMessage({ threadId, toolCalls: [call(id, isCell)] });
  return [
    message,
    { kind: 'tool.response', at: AT, threadId, toolCallId: id, outcome, content: '', ...run },
  ] satisfies UnsequencedRecord[];
}
let calls = 0;

/** A kernel was started. */
function started(type: string, generation: number, threadId = 'main'): UnsequencedRecord {
  return { kind: 'feature.event', at: AT, type, threadId, data: { generation } };
}

const LOST: Partial<Execution> = { exit: 'lost' };

test.each<[string, UnsequencedRecord[], ReturnType<typeof knownKernel>]>([
  ['a thread without cells knows of none', [], undefined],
  ['the last result counts', [...ran({ generation: 1 }), ...ran({ generation: 2 })], { generation: 2, isLost: false }],
  [
    'a failed cell counts',
    ran({ generation: 3, exit: 'error' }, { outcome: 'failed' }),
    { generation: 3, isLost: false },
  ],
  [
    'a denied cell changes nothing',
    [...ran({ generation: 1 }), ...ran(undefined, { outcome: 'denied' })],
    { generation: 1, isLost: false },
  ],
  [
    'one that was not started changes nothing',
    [...ran({ generation: 1 }), ...ran({ exit: 'not_started' }, { outcome: 'failed' })],
    { generation: 1, isLost: false },
  ],
  [
    'a lost cell has lost its kernel',
    [...ran({ generation: 4 }), ...ran(LOST, { outcome: 'unknown_outcome' })],
    { generation: 4, isLost: true },
  ],
  [
    'so has one that the end of its turn has cut off',
    ran(undefined, { outcome: 'unknown_outcome' }),
    { generation: 0, isLost: true },
  ],
  [
    'a lost cell that has started its kernel has lost that one',
    [started('kernel.started', 1), started('kernel.restarted', 2, 'thr_1'), ...ran(LOST)],
    { generation: 1, isLost: true },
  ],
  [
    'so has one that has started it again',
    [...ran({ generation: 1 }), started('kernel.restarted', 2), started('sandbox.created', 7), ...ran(LOST)],
    { generation: 2, isLost: true },
  ],
  ['a cell after a lost one counts', [...ran(LOST), ...ran({ generation: 2 })], { generation: 2, isLost: false }],
  ['other threads do not count', ran({ generation: 7 }, { threadId: 'thr_1' }), undefined],
  ['calls that need no kernel do not count', ran({ generation: 7 }, { isCell: false }), undefined],
])('%s', (_, records, expected) => {
  expect(knownKernel(records, 'main')).toEqual(expected);
});
