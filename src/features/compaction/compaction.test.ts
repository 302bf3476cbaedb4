import { fc } from '../../../test/support/fast-check.ts';
import { expect, test } from 'vitest';
import { randomTurn } from '../../../test/support/random-turn.ts';
import { compactedBy } from '../../core/compacted.ts';
import { Turn } from '../../core/turn.ts';
import type { WithoutId } from '../../core/records/base.ts';
import type { UnsequencedRecord } from '../../core/records/log.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import type { ToolResponse } from '../../core/records/results.ts';
import type { ContextCompacted } from '../../core/records/threads.ts';
import type { TurnCreated } from '../../core/records/turn.ts';
import { indexedTranscript, type TranscriptItem } from '../../core/transcript.ts';
import { withCompacted } from './compacted-conversation.ts';
import { lastReport } from '../../models/truncated-input.ts';
import { compactionThreshold, inputTokens, planCompaction, type CompactionPlan } from './compaction.ts';

const at = '2026-01-01T00:00:00.000Z';

function userSays(content: string, turnId = 'turn_1'): TurnCreated {
  return {
    kind: 'turn.created',
    id: 'evt',
    at,
    turnId,
    sessionId: 'ses_1',
    previousTurnId: null,
    createdBy: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
    input: [{ type: 'user.message', content }],
    specHash: 'h',
  };
}

/** A message that calls a tool, and the result, of so many tokens. */
function step(id: string, tokens: number, threadId = 'main'): [ModelMessage, WithoutId<ToolResponse>] {
  const info = { type: 'system' as const, name: 't' };
  const route = { to: 'client' as const };
  return [
    {
      kind: 'model.message',
      id: `msg_${id}`,
      at,
      threadId,
      content: '',
      refusal: '',
      reasoning: '',
      toolCalls: [{ id, name: 't', arguments: '{}', info, route }],
      finishReason: 'tool_calls',
    },
    { kind: 'tool.response', at, threadId, toolCallId: id, outcome: 'succeeded', content: 'r'.repeat(tokens * 4) },
  ];
}

function planOf(
  records: UnsequencedRecord[],
  { threshold = 1_000, tokens = 0, isTooLong = false, threadId = 'main' } = {},
): CompactionPlan | undefined {
  const compacted = compactedBy(records, threadId);
  const conversation = withCompacted(indexedTranscript(records, threadId), compacted);
  return planCompaction({ conversation, records, compacted, tokens, threshold, isTooLong });
}

function compactedTo(plan: CompactionPlan | undefined, threadId = 'main'): WithoutId<ContextCompacted>[] {
  if (!plan) return [];
  const { through, tokensBefore, tokensAfter, summarized } = plan;
  const summary = summarized && { summary: 'S' };
  return [{ kind: 'context.compacted', at, threadId, through, tokensBefore, tokensAfter, ...summary }];
}

function shown(records: UnsequencedRecord[], threadId = 'main'): string[] {
  const items = withCompacted(indexedTranscript(records, threadId), compactedBy(records, threadId));
  return items.map(({ item }) => textOf(item));
}

function textOf(item: TranscriptItem): string {
  if (item.role === 'assistant')
    return item.message.toolCalls.map(({ id }) => `call ${id}`).join() || item.message.content;
  if (item.role === 'tool')
    return item.content.startsWith('[') ? `cleared ${item.toolCallId}` : `result ${item.toolCallId}`;
  const [part] = item.content;
  const text = part?.type === 'text' ? part.text : '';
  return text.endsWith('\n\nS') ? 'summary' : text.slice(0, 10);
}

test('nothing is compacted up to the threshold, or if nothing would be gained', () => {
  const records = [userSays('old'), ...step('a', 2_000), userSays('new')];
  expect(planOf(records, { tokens: 1_000 })).toBeUndefined();
  // The input is large because of its instructions: the conversation is short.
  expect(planOf([userSays('old'), ...step('a', 1), userSays('new')], { tokens: 5_000 })).toBeUndefined();
  expect(planOf([userSays('x'.repeat(8_000))], { tokens: 5_000 })).toBeUndefined();
});

test('clears the results of earlier steps if that is enough', () => {
  const records = [userSays('old'), ...step('a', 800), userSays('new'), ...step('b', 10)];
  const plan = planOf(records, { tokens: 1_100 });
  expect(plan).toEqual({ through: 0, tokensBefore: 1_100, tokensAfter: 300 });
  expect(shown([...records, ...compactedTo(plan)])).toEqual([
    'old',
    'call a',
    'cleared a',
    'new',
    'call b',
    'result b',
  ]);
});

test('keeps the results of the last two steps of a turn', () => {
  const records = [userSays('go'), ...['a', 'b', 'c', 'd'].flatMap((id) => step(id, 300))];
  const plan = planOf(records, { tokens: 1_210 });
  expect(shown([...records, ...compactedTo(plan)])).toEqual([
    'go',
    'call a',
    'cleared a',
    'call b',
    'cleared b',
    'call c',
    'result c',
    'call d',
    'result d',
  ]);
  // Cleared results cannot be cleared again: the next compaction is a summary.
  const later = [...records, ...compactedTo(plan), ...step('e', 600)];
  expect(planOf(later, { tokens: 1_210 })?.summarized).toBeDefined();
});

test('summarizes previous turns first, and keeps as much as a third of the threshold', () => {
  const records = [userSays('x'.repeat(4_000)), userSays('new'), ...step('a', 100)];
  const plan = planOf(records, { tokens: 1_200 });
  expect(plan).toMatchObject({ through: 0, tokensAfter: 200 });
  expect(shown([...records, ...compactedTo(plan)])).toEqual(['summary', 'new', 'call a', 'result a']);
  const more = [...records, ...step('b', 300), ...step('c', 300)];
  const further = planOf(more, { tokens: 1_800 });
  // The turn's own message and its first steps are summarized, too.
  expect(shown([...more, ...compactedTo(further)])).toEqual(['summary', 'call c', 'result c']);
});

test('a summary is not written anew until there is enough to add to it', () => {
  const first = [userSays('x'.repeat(4_000)), userSays('two')];
  const [compacted] = compactedTo(planOf(first, { tokens: 1_200 }));
  const records = [...first, { ...compacted!, summary: 's'.repeat(2_000) }];
  // The instructions alone exceed the threshold.
  expect(planOf([...records, ...step('a', 20), ...step('b', 20)], { tokens: 5_000 })).toBeUndefined();
  expect(planOf([...records, ...step('a', 200), ...step('b', 200)], { tokens: 5_000 })?.summarized).toHaveLength(4);
});

test('a second summary replaces the first one, also in a later turn', () => {
  const first = [userSays('x'.repeat(4_000)), userSays('two')];
  const records = [...first, ...compactedTo(planOf(first, { tokens: 1_200 })), ...step('a', 1_200), userSays('three')];
  const plan = planOf(records, { tokens: 1_300 });
  expect(plan?.summarized).toBeUndefined();
  const again = [...records, ...compactedTo(plan)];
  const summarized = planOf([...again, ...step('b', 1)], { tokens: 1_300, threshold: 100, isTooLong: true });
  expect(summarized?.summarized?.map(textOf)).toEqual(['summary', 'two', 'call a', 'cleared a']);
  expect(shown([...again, ...step('b', 1), ...compactedTo(summarized)])).toEqual([
    'summary',
    'three',
    'call b',
    'result b',
  ]);
});

test('a request that a model rejects as too long is summarized, at last with the message of the user', () => {
  const records: UnsequencedRecord[] = [userSays('old'), userSays('x'.repeat(40_000))];
  const first = [...records, ...compactedTo(planOf(records, { isTooLong: true }))];
  expect(shown(first)).toEqual(['summary']);
  expect(planOf(first, { isTooLong: true })).toBeUndefined();
  const some: UnsequencedRecord[] = [userSays('old'), userSays('new')];
  const kept = [...some, ...compactedTo(planOf(some, { isTooLong: true }))];
  expect(shown(kept)).toEqual(['summary', 'new']);
  const all = [...kept, ...compactedTo(planOf(kept, { isTooLong: true }))];
  expect(shown(all)).toEqual(['summary']);
  expect(planOf(all, { isTooLong: true })).toBeUndefined();
});

test('threads are compacted by themselves', () => {
  const sub = 'thread_1';
  const parent = { threadId: 'main', toolCallId: 'a' };
  const thread = { threadId: sub, title: 't', parent, depth: 1, specHash: 'h', hasServers: false, iterations: 9 };
  const created: UnsequencedRecord = { kind: 'thread.created', at, thread, input: 'task' };
  const records = [userSays('go'), ...step('a', 500), created, ...step('b', 900, sub), ...step('c', 10, sub)];
  const plan = planOf(records, { tokens: 1_200, threadId: sub });
  const compacted = [...records, ...compactedTo(plan, sub)];
  expect(shown(compacted, sub)).toEqual(['summary', 'call c', 'result c']);
  expect(shown(compacted)).toEqual(shown(records));
});

test('a compacted conversation keeps the rules of providers, wherever it is divided', () => {
  fc.assert(
    fc.property(randomTurn(), fc.integer({ min: 1, max: 400 }), fc.boolean(), (happenings, threshold, isTooLong) => {
      const projection = new Turn();
      const log = happenings.flatMap((one) => ('event' in one ? projection.feed(one.event) : []));
      let records: UnsequencedRecord[] = [
        userSays('earlier'),
        ...step('earlier', 100),
        ...log.map(({ record }) => record),
      ];
      for (let n = 0; n < 3; n++) {
        const plan = planOf(records, { threshold, tokens: 100_000, isTooLong });
        if (!plan) return;
        records = [...records, ...compactedTo(plan)];
        const texts = shown(records);
        expect(texts[0]?.startsWith('call') || texts[0]?.startsWith('result')).toBe(false);
        let open = new Set<string>();
        const items = withCompacted(indexedTranscript(records, 'main'), compactedBy(records, 'main'));
        for (const { item } of items) {
          if (item.role === 'tool') expect(open.delete(item.toolCallId)).toBe(true);
          else expect(open.size).toBe(0);
          if (item.role === 'assistant') open = new Set(item.message.toolCalls.map(({ id }) => id));
        }
        expect(open.size).toBe(0);
      }
    }),
  );
});

test('the threshold is that of the agent, or a share of the context of its model', () => {
  const spec = (compaction: { enabled?: boolean; compaction_threshold_tokens?: number }) => ({
    model: { name: 'm' },
    config: { context_management: { compaction } },
  });
  expect(compactionThreshold({ model: { name: 'm' } }, undefined)).toBe(50_000);
  expect(compactionThreshold({ model: { name: 'm' } }, 200_000)).toBe(160_000);
  expect(compactionThreshold(spec({ compaction_threshold_tokens: 9_000 }), 200_000)).toBe(9_000);
  expect(compactionThreshold(spec({ enabled: false }), 200_000)).toBeUndefined();
});

test('the input is what the last answer reported with what was added, or an estimate', () => {
  const usage = { inputTokens: 500, outputTokens: 30, reasoningTokens: 10, cacheReadTokens: 0, cacheWriteTokens: 0 };
  const [message, result] = step('a', 100);
  const tokens = (last: ModelMessage, compactedAt = -1) => {
    const conversation = indexedTranscript([userSays('x'.repeat(400)), last, result], 'main');
    const transcript = conversation.map(({ item }) => item);
    const request = {
      system: 'y'.repeat(80),
      instructionsLength: 80,
      skillsLength: 0,
      tools: [],
      transcript,
      model: 'm',
      params: {},
      responseFormat: undefined,
      fileContent: () => Promise.resolve(''),
    };
    return inputTokens(request, lastReport(request, conversation, compactedAt));
  };
  expect(tokens({ ...message, usage })).toBe(500 + 30 - 10 + 100);
  expect(tokens(message)).toBe(221);
  // The usage of several attempts is not that of one request, and one from before a compaction is out of date.
  expect(tokens({ ...message, usage, attempts: [{ provider: 'p', model: 'm', failure: 'timeout' }] })).toBe(221);
  expect(tokens({ ...message, usage }, 1)).toBe(221);
});
