import { expect, test } from 'vitest';
import { messageWith, modelMessage } from '../../test/support/model-message.ts';
import type { UnsequencedRecord } from './records/log.ts';
import { NO_USAGE } from './records/usage.ts';
import { addRecord, NO_TOTALS } from './turn-totals.ts';

const AT = '2026-11-28T08:00:00.000Z';
const usage = { ...NO_USAGE, inputTokens: 6, outputTokens: 4 };
const totalsOf = (...records: UnsequencedRecord[]) => records.reduce(addRecord, NO_TOTALS);

const compacted = (summary?: string): UnsequencedRecord => ({
  kind: 'context.compacted',
  at: AT,
  threadId: 'main',
  through: 1,
  tokensBefore: 9,
  tokensAfter: 1,
  ...(summary !== undefined && { summary, usage }),
});

test('a message is a model call with its usage and its calls; one that code has written is none', () => {
  const calls = messageWith({ to: 'answered' }, { to: 'client' });
  expect(totalsOf({ ...calls, usage }, modelMessage())).toEqual({ usage, modelCalls: 2, toolCalls: 2 });
  expect(totalsOf({ ...calls, fromCode: true })).toEqual({ usage: NO_USAGE, modelCalls: 0, toolCalls: 2 });
});

test('a summary is a model call with its usage; results are cleared without one', () => {
  expect(totalsOf(compacted('Earlier.'), compacted('Later.'))).toEqual({
    usage: { ...NO_USAGE, inputTokens: 12, outputTokens: 8 },
    modelCalls: 2,
    toolCalls: 0,
  });
  expect(totalsOf(compacted())).toEqual(NO_TOTALS);
});

test('other records use nothing', () => {
  const response = { threadId: 'main', toolCallId: 'c', outcome: 'succeeded' as const, content: 'x' };
  expect(totalsOf({ kind: 'tool.response', at: AT, ...response })).toEqual(NO_TOTALS);
});
