import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import express from 'express';
import { expect, onTestFinished, test } from 'vitest';
import { continuation, TURN_ID, turnStart } from '../../../test/support/random-turn.ts';
import type { BlobStore } from '../../blobs/blob-store.ts';
import type { Catalog } from '../../features/catalog.ts';
import type { HistoryEvent } from '../../core/history.ts';
import { emptyText } from '../../core/message.ts';
import { turnCreated } from '../../core/turn.ts';
import type { LogEntry } from '../../core/records/log.ts';
import type { ModelMessage } from '../../core/records/message.ts';
import { TurnLogReader } from '../../engine/turn-log-reader.ts';
import type { TurnHistory } from '../../temporal/history.ts';
import { LOCAL } from '../../auth/api-keys.ts';
import type { ApiContext } from '../http/context.ts';
import { eventRoutes } from './events.ts';
import { setContext } from '../http/request.ts';
import { OnceLog } from '../../lib/once-log.ts';

const losses = new OnceLog({ warn: () => undefined });

const AT = '2026-11-22T08:00:00.000Z';
const { sessionId } = turnStart();

function messageOf(ordinal: number): ModelMessage {
  const id = `msg_${ordinal}`;
  const rest = { ...emptyText(), toolCalls: [], finishReason: 'stop' as const };
  return { kind: 'model.message', id, at: AT, threadId: 'main', ...rest };
}

/** The lists of a running turn with `entries` entries in all, the first `archived` of which are in the archive. */
async function listing({ archived, entries }: { archived: number; entries: number }) {
  const row = { id: TURN_ID, session_id: sessionId, sequence: 1, previous_turn_id: null, archived: 0 };
  const carry = continuation({ ordinal: archived, previousRunId: 'run_1' });
  const start = turnStart(archived > 0 ? { carry } : {});
  const history: HistoryEvent[] = [{ type: 'started', at: AT, start }];
  for (let ordinal = Math.max(archived, 1) + 1; ordinal <= entries; ordinal++) {
    const input = { ...start, threadId: 'main', messageId: `msg_${ordinal}`, upTo: ordinal - 1, step: 1, recent: [] };
    history.push({ type: 'scheduled', eventId: ordinal, at: AT, activity: { name: 'callModel', input } });
    const end = { how: 'completed' as const, records: [messageOf(ordinal)] };
    history.push({ type: 'ended', scheduledEventId: ordinal, at: AT, end });
  }
  const archive = Array.from({ length: archived }, (_, i): LogEntry => {
    const record = i === 0 ? turnCreated(turnStart()) : messageOf(i + 1);
    return { ordinal: i + 1, record };
  });
  const reads = { pages: 0, rows: 0 };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the methods that are called here
  const catalog = {
    sessions: { get: () => Promise.resolve({ id: sessionId, subject_id: LOCAL.subject.subjectId }) },
    turns: { get: () => Promise.resolve({ ...row, archived_through: archived }) },
    archive: {
      read: (_: string, from: number, limit: number) => {
        reads.rows += limit;
        return Promise.resolve(archive.slice(from - 1, from - 1 + limit));
      },
    },
  } as unknown as Catalog;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
  const turnHistory = {
    async *read() {
      for (let from = 0; from < history.length; from += 250) {
        reads.pages += 1;
        yield Promise.resolve({ events: history.slice(from, from + 250), lastEventId: from + 250 });
      }
    },
  } as unknown as TurnHistory;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- nothing here is large
  const logs = new TurnLogReader({ catalog, history: turnHistory, losses, blobs: {} as BlobStore });
  const app = express().use((_request, response, next) => {
    setContext(response, { caller: LOCAL });
    next();
  });
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as above
  for (const { path, handlers } of eventRoutes({ catalog, logs } as ApiContext)) app.get(path, ...handlers);
  const server = app.listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it listens on a port
  const { port } = server.address() as AddressInfo;
  const page = async (query: string) => {
    const answer = await fetch(
      `http://127.0.0.1:${port}/v1/agents/sessions/${sessionId}/turns/${TURN_ID}/events?${query}`,
    );
    const body = (await answer.json()) as {
      data: { id: string }[];
      pagination: { next_page_token: string | null };
    };
    expect(answer.status, JSON.stringify(body)).toBe(200);
    return { ids: body.data.map(({ id }) => id), token: body.pagination.next_page_token };
  };
  return { page, reads };
}

const ids = (last: number, first: number): string[] =>
  Array.from({ length: last - first + 1 }, (_, i) => `msg_${last - i}`);

test('a page of the events of a running turn, newest first, reads its history once', async () => {
  const { page, reads } = await listing({ archived: 0, entries: 3_001 });
  const { ids: first, token } = await page('order=desc&limit=1000');
  expect(first).toEqual(ids(3_001, 2_002));
  expect(reads.pages).toBe(25);
  expect((await page(`order=desc&limit=1000&page_token=${token}`)).ids).toEqual(ids(2_001, 1_002));
  expect(reads.pages).toBe(50);
});

test('archived entries are not read from the history, and no more of them than a page has', async () => {
  const { page, reads } = await listing({ archived: 500, entries: 520 });
  const { ids: first, token } = await page('order=desc&limit=50');
  expect(first).toEqual(ids(520, 471));
  expect(reads).toEqual({ pages: 1, rows: 53 });
  expect((await page(`order=desc&limit=50&page_token=${token}`)).ids).toEqual(ids(470, 421));
  expect(reads).toEqual({ pages: 1, rows: 106 });
  const rest: string[] = [];
  for (let next = token; next !== null;) {
    const answer = await page(`order=desc&limit=100&page_token=${next}`);
    rest.push(...answer.ids);
    next = answer.token;
  }
  expect(rest).toEqual(ids(470, 2));
});

test('a page of the events of a running turn, oldest first, also reads its history once', async () => {
  const { page, reads } = await listing({ archived: 0, entries: 300 });
  const { ids: first, token } = await page('limit=100');
  expect(first).toEqual(ids(101, 2).reverse());
  reads.pages = 0;
  expect((await page(`limit=100&page_token=${token}`)).ids).toEqual(ids(201, 102).reverse());
  expect(reads.pages).toBe(2);
});
