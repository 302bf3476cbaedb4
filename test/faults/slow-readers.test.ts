import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { EventReader, folded, frameOf, type Frame } from '../support/api-client.ts';
import { Exposition } from '../support/prometheus.ts';
import { textOf, type ModelCall } from '../support/scripted-model.ts';
import { isFinding } from './support/persistence.ts';
import type { RecordedTurn } from './support/recorder.ts';
import { OPERATOR } from './support/subjects.ts';
import { sized } from './support/sized.ts';
import { World } from './support/world.ts';

/** Row 12: crowds of readers that read nothing, or all reconnect at once. */

/** Fewer would cost less than the API may use without readers, also if nothing bounded what waits for a reader. */
const STALLED = sized({ brief: 120, full: 200, long: 1_000 });
const RECONNECTING = sized({ brief: 100, full: 300, long: 2_000 });

const MB = 1024 * 1024;
/** The memory that the API may use without readers, including the text of the turn in several forms. */
const BASE_BYTES = 256 * MB;
/** ... and per reader. */
const READER_BYTES = MB / 2;
const CHUNK = 'x'.repeat(32 * 1024);
/** Somewhat less than the most that one message may have. */
const MESSAGE_BYTES = 30 * CHUNK.length;
const MESSAGES = 9;
/** Twice what the kernel takes for a reader: the rest would have to wait in the API. */
const TEXT_BYTES = MESSAGES * MESSAGE_BYTES;

/** Sent to a reader of another turn, word by word, while some read nothing. */
const WORDS = 20;

let it: World;
/** The model's response to each message, however often it is requested. */
const speeches = new Map<string, (call: ModelCall) => Promise<void>>();
beforeAll(async () => {
  it = await World.start();
  it.model.otherwise = async (call) => {
    const speech = speeches.get(textOf(call.request.messages.findLast(({ role }) => role === 'user')));
    await (speech ? speech(call) : it.planned.answer(call));
  };
});
afterAll(() => it.checkAndStop());

test(`${STALLED} readers that have stopped reading cost little memory, and do not delay others`, async () => {
  const [asked, mayBegin, mayEnd] = [gate(), gate(), gate()];
  // Also when the test fails: the turn is to end.
  onTestFinished(() => [mayBegin, mayEnd].forEach(({ resolve }) => resolve()));
  speeches.set('Speak at length.', async (call) => {
    asked.resolve();
    await mayBegin.promise;
    const messages = call.request.messages.filter(({ role }) => role === 'assistant').length;
    for (let bytes = CHUNK.length; bytes <= MESSAGE_BYTES; bytes += CHUNK.length) {
      call.text(CHUNK);
      // One chunk at a time: the reader that reads has to be given each while the others have not taken it.
      await turn.until((frames) => lengthOf(frames) >= messages * MESSAGE_BYTES + bytes);
    }
    if (messages + 1 < MESSAGES) return call.toolCall('look', {}, `look_${messages}`).finish();
    await mayEnd.promise;
    call.finish();
  });
  const turn = await it.recorder.turn(await it.session(), [{ type: 'user.message', content: 'Speak at length.' }]);
  await asked.promise;
  const stalled: Stalled[] = [];
  const stallMore = async () => {
    stalled.push(...(await Promise.all(Array.from({ length: STALLED / 2 }, () => stall(turn)))));
  };
  await it.fault(stallMore);

  const memory = watchMemory();
  mayBegin.resolve();
  await beforeDisconnection(
    0,
    turn.until((frames) => lengthOf(frames) >= TEXT_BYTES),
  );
  await beforeDisconnection(0, talk(WORDS));
  // These get the text from the log, in the longest events that there are.
  await stallMore();
  // On a slow machine those that have stalled before may have been disconnected now.
  await beforeDisconnection(STALLED / 2, talk(WORDS));
  expect(await memory.stop(), 'bytes that the readers have cost').toBeLessThan(BASE_BYTES + STALLED * READER_BYTES);

  // Some resume reading, and have missed nothing.
  mayEnd.resolve();
  await turn.done;
  const [early, late] = [stalled[0], stalled.at(-1)];
  for (const reader of stalled) if (reader !== early && reader !== late) reader.abort.abort();
  for (const reader of [early, late]) {
    if (!reader) throw new Error('there are so many');
    expect(folded(await framesOf(turn, reader))).toEqual(folded(turn.frames));
  }
});

test(`${RECONNECTING} readers reconnect at once: all resume at their position, and do not delay others`, async () => {
  const said = pace('Speak slowly.', 40, 200);
  const turn = await it.recorder.turn(await it.session(), [{ type: 'user.message', content: 'Speak slowly.' }]);
  const api = it.recorder.as(it.recorder.ownerOf(turn.sessionId));
  const before = Array.from({ length: RECONNECTING }, () => api.subscribe(turn.sessionId, turn.turnId));
  for (const reader of before) await reader.says('w3 ');
  const memory = watchMemory();
  const cut = await it.fault(() => before.map((reader) => reader.close()));
  const after = before.map(({ frames }) =>
    api.subscribe(turn.sessionId, turn.turnId, frames.at(-1)?.sequence_number, 'header'),
  );
  await Promise.all(after.map((reader) => reader.next(() => true)));
  const resumed = performance.now();
  await turn.done;
  for (const [i, reader] of after.entries()) {
    expect(folded(before[i]?.frames ?? [], await reader.done)).toEqual(folded(turn.frames));
  }
  expect(await memory.stop(), 'bytes that the readers have cost').toBeLessThan(
    BASE_BYTES + RECONNECTING * READER_BYTES,
  );
  const delays = delaysOf(turn, said).filter((word) => word.said > cut && word.said < resumed);
  // In the time of this machine: a word that waits for all of them, and for as long again, is held up by something else.
  expect(Math.max(...delays.map(({ delay }) => delay)), 'milliseconds from a word to its reader').toBeLessThan(
    2 * (resumed - cut),
  );
});

interface Stalled {
  response: Response;
  abort: AbortController;
}

/** Opens a stream without reading it. */
async function stall({ sessionId, turnId }: RecordedTurn): Promise<Stalled> {
  const abort = new AbortController();
  const path = `/v1/agents/sessions/${sessionId}/turns/${turnId}/subscribe`;
  const headers = { authorization: `Bearer ${it.recorder.ownerOf(sessionId).key}` };
  const response = await fetch(it.recorder.api.url + path, { method: 'POST', headers, signal: abort.signal });
  expect(response.status).toBe(200);
  return { response, abort };
}

/** Reads what is left of a stream; if the API has ended it, as on a slow machine, the rest as clients do. */
async function framesOf({ sessionId, turnId }: RecordedTurn, { response, abort }: Stalled): Promise<Frame[]> {
  const reader = new EventReader(Promise.resolve(response), abort, frameOf);
  const { frames } = reader;
  await reader.done.catch((error: unknown) => {
    if (isFinding(error)) throw error;
  });
  if (frames.at(-1)?.type === 'turn.done') return frames;
  const api = it.recorder.as(it.recorder.ownerOf(sessionId));
  return [...frames, ...(await api.subscribe(sessionId, turnId, frames.at(-1)?.sequence_number, 'header').done)];
}

/** On the message `content` the model sends this many words at this interval; returns the time of each. */
function pace(content: string, words: number, pauseMs: number): number[] {
  const said: number[] = [];
  speeches.set(content, async (call) => {
    said.length = 0;
    let isGone = false;
    void call.closed.then(() => (isGone = true));
    for (let i = 0; i < words; i++) {
      if (isGone) return;
      said.push(performance.now());
      call.text(`w${i} `);
      await sleep(pauseMs);
    }
    call.finish();
  });
  return said;
}

/** Has a model send so many words in another turn, each when the reader has the one before. */
async function talk(words: number): Promise<void> {
  const following = Promise.withResolvers<RecordedTurn>();
  speeches.set('Speak with me.', async (call) => {
    const reader = await following.promise;
    for (let i = 1; i <= words; i++) {
      call.text(`w${i} `);
      await reader.words(i);
    }
    call.finish();
  });
  const turn = await it.recorder.turn(await it.session(), [{ type: 'user.message', content: 'Speak with me.' }]);
  following.resolve(turn);
  await turn.done;
}

/**
 * Waits for what others receive beside stalled readers, of which `known` may be disconnected. The API disconnects each
 * after a minute, and what waits for one arrives after that: the order tells it from late data on a slow machine.
 */
async function beforeDisconnection(known: number, received: Promise<void>): Promise<void> {
  for (let isReceived = false; !isReceived;) {
    isReceived = await Promise.race([received.then(() => true), sleep(1_000, false)]);
    expect(await disconnections(), 'stalled readers that were disconnected first').toBeLessThanOrEqual(known);
  }
}

/** How many readers the API has disconnected because they read nothing. */
async function disconnections(): Promise<number | undefined> {
  const headers = { authorization: `Bearer ${OPERATOR.key}` };
  const response = await fetch(`${it.recorder.api.url}/metrics`, { headers });
  return new Exposition(await response.text()).value('everturn_readers_disconnected_total');
}

/** When each word was sent, and how long it took to its reader, in milliseconds. */
function delaysOf(turn: RecordedTurn, said: number[]): { said: number; delay: number }[] {
  const delays: { said: number; delay: number }[] = [];
  for (const { frame, at } of turn.recorded) {
    if (frame.type !== 'model.message.delta') continue;
    for (const word of (frame.content ?? '').match(/\d+/g) ?? []) {
      const moment = said[Number(word)] ?? NaN;
      // Text that is sent again has nothing new.
      if (Number(word) === delays.length) delays.push({ said: moment, delay: at - moment });
    }
  }
  expect(delays).toHaveLength(said.length);
  return delays;
}

/** The highest growth of the API's memory, in bytes, until it is stopped or the test has failed. */
function watchMemory(): { stop: () => Promise<number> } {
  const over = new AbortController();
  onTestFinished(() => over.abort());
  const [api] = it.apis;
  const watch = async (): Promise<number> => {
    const first = (await api?.memory()) ?? 0;
    let most = first;
    while (!over.signal.aborted) {
      most = Math.max(most, (await api?.memory()) ?? 0);
      await sleep(200);
    }
    return most - first;
  };
  const watched = watch();
  return {
    stop: () => {
      over.abort();
      return watched;
    },
  };
}

/** The length of all texts so far: a message may be repeated. */
function lengthOf(frames: RecordedTurn['frames']): number {
  const lengths = new Map<string, number>();
  for (const frame of frames) {
    if (frame.type === 'model.message') lengths.set(frame.id, frame.content.length);
    if (frame.type !== 'model.message.delta') continue;
    lengths.set(frame.id, (lengths.get(frame.id) ?? 0) + (frame.content?.length ?? 0));
  }
  return [...lengths.values()].reduce((sum, length) => sum + length, 0);
}

function gate(): PromiseWithResolvers<void> {
  return Promise.withResolvers<void>();
}
