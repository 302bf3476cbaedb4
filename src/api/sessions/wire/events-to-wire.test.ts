import { expect, test } from 'vitest';
import { OWNER } from '../../../../test/support/readers.ts';
import type { ModelMessage } from '../../../core/records/message.ts';
import type { ActionRequired, ToolDecided } from '../../../core/records/pending.ts';
import type { TurnDone } from '../../../core/records/turn.ts';
import { NO_TOTALS } from '../../../core/turn-totals.ts';
import { toWire } from './events-to-wire.ts';

const at = '2026-11-24T08:00:00.000Z';
const activities = [{ name: 'callModel' as const, threadId: 'main', scheduledAt: at, attempts: [{ number: 1 }] }];

const output: ModelMessage = {
  kind: 'model.message',
  id: 'msg_1',
  at,
  activities,
  threadId: 'main',
  content: 'hello',
  refusal: '',
  reasoning: '',
  toolCalls: [],
  finishReason: 'stop',
};

const required: ActionRequired = {
  kind: 'tool.approval_required',
  id: 'evt_1',
  at,
  activities,
  threadId: 'main',
  calls: [],
};

const decided: ToolDecided = {
  kind: 'tool.decided',
  id: 'evt_3',
  at,
  activities,
  threadId: 'main',
  toolCallId: 'call_1',
  decision: 'allow',
  remaining: 0,
};

const done: TurnDone = {
  kind: 'turn.done',
  id: 'evt_2',
  at,
  activities,
  end: { status: 'done', output, requiredActions: [required] },
  ...NO_TOTALS,
  waitedMs: 0,
  workedMs: 0,
};

test.each([output, required, decided, done])(
  'the activities of a $kind are shown with view=full alone, and once',
  (record) => {
    const shown = [{ kind: 'model_call', thread_id: 'main', scheduled_at: at, attempts: [expect.anything()] }];
    expect(toWire(record, OWNER, 'full')).toMatchObject({ activities: shown });
    expect(JSON.stringify(toWire(record, OWNER, 'full')).match(/"activities"/g)).toHaveLength(1);
    expect(JSON.stringify(toWire(record, OWNER))).not.toContain('activities');
  },
);
