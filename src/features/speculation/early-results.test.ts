import { expect, test } from 'vitest';
import { messageWith } from '../../../test/support/model-message.ts';
import type { NewRecord } from '../../core/records/log.ts';
import { shortResults, withEarlyResults } from './early-results.ts';

const AT = '2026-01-01T00:00:00.000Z';
const server = { to: 'server', effect: 'retry', approval: false, callHash: 'h' } as const;
const answered = { to: 'answered' } as const;

function response(toolCallId: string, content: string): NewRecord {
  return { kind: 'tool.response', at: AT, threadId: 'main', toolCallId, outcome: 'failed', content };
}

const connected: NewRecord = { kind: 'mcp.initialize', at: AT, threadId: 'main', servers: [] };
const refresh: NewRecord = { kind: 'toolkit.refresh_required', at: AT, messageId: 'msg_1', toolkits: ['a'] };

test('results follow their message in the order of the calls, and the calls are marked as run', () => {
  const message = messageWith(server, answered, server);
  const records = [connected, message, response('call_1', 'no such tool'), refresh];
  const results = [
    { index: 2, result: { outcome: 'failed', text: 'third' } as const },
    { index: 0, result: { outcome: 'succeeded', text: 'first' } as const },
  ];
  const [before, its, ...rest] = withEarlyResults(records, message, results);
  expect(before).toBe(connected);
  const ran = { to: 'answered', ran: true };
  expect(its).toMatchObject({ id: 'msg_1', toolCalls: [{ route: ran }, { route: answered }, { route: ran }] });
  expect(rest).toMatchObject([
    { kind: 'tool.response', threadId: 'main', toolCallId: 'call_0', outcome: 'succeeded', content: 'first' },
    { toolCallId: 'call_1', content: 'no such tool' },
    { toolCallId: 'call_2', outcome: 'failed', content: 'third' },
    refresh,
  ]);
  expect(message.toolCalls[0]?.route).toBe(server);
});

test('structured content that the text of a result does not have is recorded with it', () => {
  const message = messageWith(server, server);
  const connection = { serverId: 's', id: 'c' };
  const said = { status: 'result', isError: false, content: [{ type: 'text', text: 'warm' }] } as const;
  const results = shortResults([
    { index: 0, outcome: { ...said, content: [...said.content], structuredContent: { celsius: 20 }, connection } },
    { index: 1, outcome: { ...said, content: [], structuredContent: { celsius: 21 } } },
  ]);
  const [, first, second] = withEarlyResults([message], message, results ?? []);
  const base64 = Buffer.from('{"celsius":20}').toString('base64');
  expect(first).toMatchObject({
    content: 'warm',
    structuredContent: { base64, mimeType: 'application/json' },
    connection,
  });
  expect(second).toMatchObject({ content: '{"celsius":21}' });
  expect(second).not.toHaveProperty('structuredContent');
});
