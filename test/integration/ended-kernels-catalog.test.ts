import { expect, test } from 'vitest';
import type { LogEntry } from '../../src/core/records/log.ts';
import { endOfThread } from '../../src/core/sub-agents.ts';
import { endedAgents } from '../../src/features/code/ended-kernels.ts';
import { resetsOf } from '../../src/features/code/kernel-state.ts';
import { insertSession } from '../support/insert-session.ts';
import { openTestCatalog } from '../support/test-catalog.ts';

const NOW = '2026-11-02T10:00:00.000Z';

/** The end of a sub-agent in a log. */
function endOf(threadId: string, ordinal: number): LogEntry[] {
  const parent = { threadId: 'main', toolCallId: `call_${threadId}` };
  const records = endOfThread({ threadId, title: 'x', parent }, { at: NOW, end: { status: 'done' }, answer: 'done' });
  return records.map((record, i) => ({
    ordinal: ordinal + i,
    record: { ...record, id: `evt_${ordinal + i}` } as LogEntry['record'],
  }));
}

test('the archived ends of sub-agents end the kernels that they have, once', async () => {
  const { catalog } = await openTestCatalog();
  await insertSession(catalog, { id: 's', at: NOW });
  const turn = { turnId: 't', sessionId: 's', previousTurnId: null, sequence: 1, createdAt: NOW, title: 'x' };
  await catalog.turns.accept(turn);
  const { sandboxes } = catalog;
  await sandboxes.create({ session_id: 's', id: 'sbx', host: 'h', isolation: 'sandbox', opened_by: '' }, Date.now());
  const kernel = { generation: 1, status: 'ready', lastUsedAt: 0, expiresAt: null, memoryBytes: 0 } as const;
  const kernels = ['main', 'a', 'b'].map((threadId) => ({ ...kernel, threadId }));
  await sandboxes.note({ sessionId: 's', host: 'h', calls: 0, kernels: JSON.stringify(kernels) });
  const entries = [...endOf('a', 1), ...endOf('none', 3), ...endOf('b', 5)];
  const archive = (through: number, ended = entries.slice(0, through)) =>
    catalog.archive.add('t', ended, { state: 'running', endedAgents: endedAgents(ended) });
  const resets = async () => resetsOf((await sandboxes.get('s')) ?? { resets: null });
  await archive(4);
  const [a] = await resets();
  expect(await resets()).toEqual([{ threadId: 'a', id: expect.any(String), stops: true, ends: true }]);
  // Another worker archives the same entries, and more.
  await archive(6);
  expect(await resets()).toEqual([a, expect.objectContaining({ threadId: 'b', ends: true })]);
  // The host may have done it before.
  await sandboxes.resetsDone({ sessionId: 's', host: 'h', resets: (await sandboxes.get('s'))?.resets ?? '' });
  await archive(6);
  expect(await resets()).toEqual([]);
  // While a call runs, the host may have started a kernel that is not in the row yet.
  await sandboxes.note({ sessionId: 's', host: 'h', calls: 1, kernels: JSON.stringify(kernels) });
  await archive(8, [...entries, ...endOf('new', 7)]);
  expect(await resets()).toMatchObject([{ threadId: 'new', ends: true }]);
});
