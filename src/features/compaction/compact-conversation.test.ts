import { expect, test, vi } from 'vitest';
import type { UnsequencedRecord } from '../../core/records/log.ts';
import { indexedTranscript } from '../../core/transcript.ts';
import { withCutResults } from './compact-conversation.ts';

const at = '2026-01-01T00:00:00.000Z';
const threadId = 'main';

function messageWithCalls(ids: string[]): UnsequencedRecord {
  return {
    kind: 'model.message',
    id: 'msg_1',
    at,
    threadId,
    content: '',
    refusal: '',
    reasoning: '',
    finishReason: 'tool_calls',
    toolCalls: ids.map((id) => ({
      id,
      name: 'read',
      arguments: '{}',
      info: { type: 'mcp', serverId: 's', serverName: 's', name: 'read' },
      route: { to: 'client' },
    })),
  };
}

function shown(records: UnsequencedRecord[]) {
  const cut = withCutResults({ model: { name: 'm' } }, indexedTranscript(records, threadId));
  return cut.map(({ item }) => item);
}

const results = (ids: string[], content: string): UnsequencedRecord[] =>
  ids.map((toolCallId) => ({ kind: 'tool.response', at, threadId, toolCallId, outcome: 'succeeded', content }));

test('a result is measured and cut once for all later model calls', () => {
  const ids = ['call_1', 'call_2', 'call_3'];
  const answers: UnsequencedRecord = {
    kind: 'turn.created',
    at,
    turnId: 'turn_2',
    sessionId: 'ses_1',
    previousTurnId: 'turn_1',
    createdBy: { subjectId: 'ann', subjectType: 'user', subjectSlug: 'ann' },
    input: [{ type: 'user.tool_response', threadId, toolCallId: 'call_4', content: 'é'.repeat(30_000) }],
    specHash: 'hash',
  };
  const records = [messageWithCalls([...ids, 'call_4']), ...results(ids, 'é'.repeat(30_000)), answers];
  const measured = vi.spyOn(TextEncoder.prototype, 'encode');
  const walked = vi.spyOn(String.prototype, 'codePointAt');
  try {
    const first = shown(records);
    expect([measured.mock.calls.length, walked.mock.calls.length]).toEqual([4, 0]);
    const more = results(['call_5'], 'x'.repeat(200_000));
    const second = shown([...records, messageWithCalls(['call_5']), ...more]);
    expect(second.slice(0, first.length)).toEqual(first);
    // The new result is certainly too long, so no more of it is measured than is kept.
    expect(measured.mock.calls.length).toBeLessThanOrEqual(6);
    expect(walked.mock.calls.length).toBeLessThanOrEqual(2 * 64 * 1024);
    const before = [measured.mock.calls.length, walked.mock.calls.length];
    shown([...records, messageWithCalls(['call_5']), ...more]);
    expect([measured.mock.calls.length, walked.mock.calls.length]).toEqual(before);
  } finally {
    vi.restoreAllMocks();
  }
});

test('a result above 64 KiB is cut, a smaller one is not', () => {
  const contents = ['x'.repeat(64 * 1024), 'x'.repeat(64 * 1024 + 1), '\n'.repeat(32 * 1024), '\n'.repeat(40 * 1024)];
  const records = contents.flatMap((content, i) => [
    messageWithCalls([`call_${i}`]),
    ...results([`call_${i}`], content),
  ]);
  const items = shown(records).filter((item) => item.role === 'tool');
  expect(items.map((item, i) => item.content === contents[i])).toEqual([true, false, true, false]);
  for (const { content } of items)
    expect(Buffer.byteLength(JSON.stringify(content))).toBeLessThanOrEqual(64 * 1024 + 2);
});

test('the note in a cut result says how long the whole is, where the gap is, and how to read it', () => {
  const fullText = { name: 'r', mimeType: 'text/plain', bytes: 9e5, characters: 900_000, blob: 'b', sessionId: 's' };
  const cut = results(['call_1'], 'x'.repeat(200_000)).map((record) => ({ ...record, fullText }));
  for (const [more, total] of [[cut, 900_000] as const, [results(['call_1'], 'x'.repeat(200_000)), 200_000] as const]) {
    const [, item] = shown([messageWithCalls(['call_1']), ...more]);
    const [, head, omitted, of, from, tail] =
      /^(x+)\n\[(\d+) of the (\d+) characters .*from character (\d+) on; read_tool_response .*call_1\]\n(x+)$/.exec(
        item?.role === 'tool' ? item.content : '',
      ) ?? [];
    expect([Number(of), Number(from)]).toEqual([total, head?.length]);
    expect((head?.length ?? 0) + Number(omitted) + (tail?.length ?? 0)).toBe(total);
  }
});

test('an agent may have its results whole', () => {
  const records = [messageWithCalls(['call_1']), ...results(['call_1'], 'x'.repeat(200_000))];
  const config = { context_management: { large_tool_response: { enabled: false } } };
  const conversation = indexedTranscript(records, threadId);
  expect(withCutResults({ model: { name: 'm' }, config }, conversation)).toEqual(conversation);
});
