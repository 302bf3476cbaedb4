import { Client, Connection } from '@temporalio/client';
import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import { sessionWorkflowId } from '../../src/core/temporal-names.ts';
import { newId } from '../../src/engine/new-id.ts';
import type { Topic } from '../../src/live/bus.ts';
import { InProcessBus } from '../../src/live/in-process-bus.ts';
import { foldedByTurn, type EventReader, type SessionFrame } from '../support/api-client.ts';
import { LossyBus, mulberry32 } from '../support/lossy-bus.ts';
import { held, say, use } from '../support/scripted-model.ts';
import { SEED } from '../support/seed.ts';
import { onTestServer, startTestServer, type Chat, type TestServer } from '../support/test-server.ts';

type Reader = EventReader<SessionFrame>;

/** Loses the hints of new turns while `losesHints` is set. */
class HintingBus extends InProcessBus {
  losesHints = false;

  override hint(topic: Topic): void {
    if (!this.losesHints || !topic.startsWith('session:')) super.hint(topic);
  }
}

const bus = new HintingBus();

let server: TestServer;
/** Its bus loses frames and hints. */
let lossy: TestServer;
beforeAll(async () => {
  server = await startTestServer({ bus });
  lossy = await startTestServer({
    bus: new LossyBus(SEED, new InProcessBus()),
    mcp: {
      tools: [
        { name: 'look', annotations: { readOnlyHint: true }, handler: () => 'seen' },
        { name: 'write', annotations: { destructiveHint: true }, handler: () => 'written' },
      ],
    },
  });
});
afterAll(async () => {
  await server.stop();
  await lossy.stop();
});

interface FollowOptions {
  on?: TestServer;
  how?: 'query' | 'header';
}

/** Streams a session until the test has finished. */
function follow({ sessionId }: Chat, after?: number, { on = server, how }: FollowOptions = {}): Reader {
  const reader = on.api.followSession(sessionId, after, how);
  onTestFinished(() => reader.close());
  return reader;
}

/** The number of ended turns. */
function endsIn(frames: SessionFrame[]): number {
  return frames.filter(({ type }) => type === 'turn.done').length;
}

/** The frames up to the end of the `count`-th turn. */
async function turnsOf(reader: Reader, count: number): Promise<SessionFrame[]> {
  await reader.next(() => endsIn(reader.frames) >= count);
  return reader.frames;
}

/** The events of turns as the lists have them. */
async function listed(
  { path }: Chat,
  turnIds: string[],
  { api } = server,
): Promise<{ turnId: string; events: object[] }[]> {
  const turns: { turnId: string; events: object[] }[] = [];
  for (const turnId of turnIds) {
    const items = await api.list<{ turn_id: string; event: object }>(`${path}/events?last_turn_id=${turnId}`);
    const events = items.filter((item) => item.turn_id === turnId).map(({ event }) => event);
    turns.push({ turnId, events: events.reverse() });
  }
  return turns;
}

function isArchived({ database }: TestServer, turnId: string): Promise<boolean> {
  const row = database.rows.selectFrom('turns').selectAll().where('id', '=', turnId).executeTakeFirst();
  return row.then((found) => found?.archived === 1);
}

/** A session with turns that end in every way: their ids, in their order. */
async function allKindsOfTurns(chat: Chat): Promise<string[]> {
  const ids: string[] = [];
  const add = async (input: unknown, more?: object, during?: () => Promise<unknown>) => {
    const reader = chat.turn(input, more);
    ids.push(await reader.turnId());
    await during?.();
    return (await reader.end()).status;
  };
  const slow = held(
    (call) => call.text('I was about to'),
    () => undefined,
  );
  chat.script(
    say('one two three four five'),
    use({ name: 'look' }, { name: 'write', id: 'call_w' }),
    say('It is written.'),
    (call) => call.text('half').cut(),
    say('half a sentence'),
    (call) => call.fail(400, 'no more'),
    slow.script,
    say('a fork'),
    say('a root'),
  );
  expect(await add('first')).toBe('done');
  expect(await add('look and write')).toBe('done');
  const approval = { type: 'user.tool_approval', thread_id: 'main', tool_call_id: 'call_w' };
  expect(await add([{ ...approval, approval: { status: 'allow' } }])).toBe('done');
  expect(await add('break')).toBe('done');
  expect(await add('fail')).toBe('error');
  const cancel = async (): Promise<void> => {
    await slow.reached;
    await lossy.api.send('POST', `${chat.path}/cancel`, {});
  };
  expect(await add('wait', {}, cancel)).toBe('cancelled');
  expect(await add('fork', { previous_turn_id: ids[0] })).toBe('done');
  expect(await add('root', { previous_turn_id: 'none' })).toBe('done');
  return ids;
}

test('a session that is cut at any event, while it runs or later, folds to the lists', async () => {
  const chat = await lossy.chat({ spec: onTestServer });
  const on = lossy;
  const random = mulberry32(SEED);
  /** Reads some events per connection until the session has this many ended turns. */
  const readInPieces = async (): Promise<SessionFrame[]> => {
    const all: SessionFrame[] = [];
    while (endsIn(all) < 8) {
      const reader = follow(chat, all.at(-1)?.sequence_number, { on, how: random() < 0.5 ? 'query' : 'header' });
      const enough = Math.ceil(random() * 6);
      await reader.next(() => reader.frames.length >= enough || endsIn([...all, ...reader.frames]) === 8);
      reader.close();
      all.push(...reader.frames.slice(0, enough));
    }
    return all;
  };
  const [whole, ...pieces] = [follow(chat, 0, { on }), ...Array.from({ length: 3 }, readInPieces)] as const;
  const ids = await allKindsOfTurns(chat);
  const expected = await listed(chat, ids, on);
  expect(foldedByTurn(await turnsOf(whole, 8))).toEqual(expected);
  for (const frames of await Promise.all(pieces)) {
    expect(foldedByTurn(frames)).toEqual(expected);
    const numbers = frames.map(({ sequence_number: number }) => number);
    expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  }
  // From the archive, and from what is not archived yet: the numbers of durable events are the same.
  const replayed = follow(chat, 0, { on });
  const frames = [...(await turnsOf(replayed, 8))];
  expect(foldedByTurn(frames)).toEqual(expected);
  await expect.poll(() => isArchived(on, ids.at(-1) ?? '')).toBe(true);
  expect(await turnsOf(follow(chat, 0, { on }), 8)).toEqual(frames);
  const last = frames.at(-1)?.sequence_number;
  for (const [i, { sequence_number: cursor }] of frames.slice(0, -1).entries()) {
    const rest = follow(chat, cursor, { on });
    await rest.next(({ sequence_number: number }) => number === last);
    rest.close();
    expect(foldedByTurn(frames.slice(0, i + 1), rest.frames), `cut after event ${i}`).toEqual(expected);
  }
});

test('a reader that waits at the end gets the turns that start, live; those without a reader are replayed', async () => {
  const answer = held(
    (call) => call.text('I am '),
    (call) => call.text('here.').finish(),
  );
  const chat = await server.chat({ scripts: [say('one'), answer.script] });
  const waiting = follow(chat);
  await chat.turn('first').done;
  const first = (await turnsOf(waiting, 1)).at(-1)?.sequence_number;
  const unread = chat.turn('second');
  await unread.turnId();
  unread.close();
  // The message is not durable yet.
  await answer.reached;
  await waiting.says('I am');
  const late = follow(chat, first);
  await late.says('I am');
  answer.release();
  expect((await turnsOf(waiting, 2)).at(-1)).toEqual((await turnsOf(late, 1)).at(-1));
  expect(foldedByTurn(late.frames)).toEqual(foldedByTurn(waiting.frames).slice(1));
});

test('a turn is followed although the hint of it was lost', async () => {
  const chat = await server.chat({ scripts: [say('one'), say('two')] });
  const waiting = follow(chat);
  await chat.turn('first').done;
  await turnsOf(waiting, 1);
  bus.losesHints = true;
  onTestFinished(() => void (bus.losesHints = false));
  await chat.turn('second').done;
  expect((await turnsOf(waiting, 2)).at(-1)?.type).toBe('turn.done');
});

test('a turn whose API died before it indexed the turn is followed', async () => {
  const answer = held(
    (call) => call.text('I was '),
    (call) => call.text('not lost.').finish(),
  );
  const chat = await server.chat({ scripts: [say('one'), answer.script] });
  await chat.turn('first').done;
  const second = chat.turn('second');
  const turnId = await second.turnId();
  await answer.reached;
  const { rows } = server.database;
  await expect
    .poll(async () => {
      const indexed = rows.updateTable('turns').set({ sequence: null, previous_turn_id: null });
      return (await indexed.where('id', '=', turnId).where('sequence', 'is not', null).execute())[0]?.numUpdatedRows;
    })
    .toBe(1n);
  const reader = follow(chat);
  await reader.says('I was');
  answer.release();
  expect((await turnsOf(reader, 2)).at(-1)?.turn_id).toBe(turnId);
});

test('turns without a history are passed over, and never make a later number smaller', async () => {
  const chat = await server.chat({ scripts: [say('one'), say('two')] });
  const first = chat.turn('first');
  await first.done;
  const reader = follow(chat);
  const seen = (await turnsOf(reader, 1)).at(-1)?.sequence_number ?? 0;
  const before = new Date(Date.now() - 60_000).toISOString();
  for (const sequence of [2, 3]) {
    const row = { id: newId('turn'), session_id: chat.sessionId, previous_turn_id: null, sequence, created_at: before };
    await server.database.rows.insertInto('turns').values(row).execute();
  }
  // The memory of the session is lost with the turns.
  const connection = await Connection.connect({ address: inject('temporalAddress') });
  const client = new Client({ connection, namespace: inject('temporalNamespace') });
  await client.workflow.getHandle(sessionWorkflowId(chat.sessionId)).terminate();
  await connection.close();
  // A reader may have received events of a lost turn.
  const ofLost = follow(chat, seen + 5_000_000);
  const second = chat.turn('second');
  await second.done;
  const frames = await turnsOf(reader, 2);
  expect(foldedByTurn(frames)).toEqual(await listed(chat, [await first.turnId(), await second.turnId()]));
  expect(frames.filter(({ sequence_number: number }) => number > seen)).toEqual(await turnsOf(ofLost, 1));
  expect(frames.at(-1)?.sequence_number).toBeLessThan(Number.MAX_SAFE_INTEGER);
});

test('the stream of a session that is deleted ends, between turns and during one', async () => {
  const idle = await server.chat({ scripts: [say('one')] });
  await idle.turn('first').done;
  const answer = held(
    (call) => call.text('I am '),
    () => undefined,
  );
  const busy = await server.chat({ scripts: [answer.script] });
  const running = busy.turn('first');
  await running.turnId();
  const readers = [follow(idle), follow(busy)] as const;
  await turnsOf(readers[0], 1);
  await readers[1].says('I am');
  for (const [i, chat] of [idle, busy].entries()) {
    expect((await server.api.send('DELETE', chat.path)).status).toBe(204);
    await readers[i]?.done;
    await expect(follow(chat).done).rejects.toThrow('session_not_found');
  }
});

test('a cursor that no stream of the session has sent is rejected', async () => {
  const chat = await server.chat({ scripts: [say('one')] });
  const refused = async (cursor: string): Promise<unknown> => {
    const { status, body } = await server.api.send('GET', `${chat.path}/stream?after=${cursor}`);
    return [status, body.error.code];
  };
  expect(await refused('1000000')).toEqual([400, 'invalid_cursor']);
  await chat.turn('first').done;
  const frames = await turnsOf(follow(chat), 1);
  const last = frames.at(-1)?.sequence_number ?? 0;
  for (const cursor of [String(last + 1_000_000), '3000000000000000', '995000', '9999999999999999']) {
    expect(await refused(cursor), cursor).toEqual([400, 'invalid_cursor']);
  }
  expect(await refused('x')).toEqual([400, 'invalid_request']);
  expect((await server.api.send('HEAD', `${chat.path}/stream`)).status).toBe(200);
});

test('200 readers of a session get the same', async () => {
  const answer = held(
    (call) => call.text('To all '),
    (call) => call.text('of you.').finish(),
  );
  const chat = await server.chat({ scripts: [say('one'), answer.script] });
  const readers = Array.from({ length: 200 }, () => follow(chat));
  await chat.turn('first').done;
  await Promise.all(readers.map((reader) => turnsOf(reader, 1)));
  const second = chat.turn('second');
  await answer.reached;
  await Promise.all(readers.map((reader) => reader.says('To all')));
  answer.release();
  const ids = await Promise.all([readers[0]?.turnId() ?? '', second.turnId()]);
  const expected = await second.done.then(() => listed(chat, ids));
  for (const reader of readers) expect(foldedByTurn(await turnsOf(reader, 2))).toEqual(expected);
});
