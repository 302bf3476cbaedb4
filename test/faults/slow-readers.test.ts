import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { EventReader, folded, frameOf } from '../support/api-client.ts';
import { textOf, type ModelCall } from '../support/scripted-model.ts';
import type { RecordedTurn } from './support/recorder.ts';
import { World } from './support/world.ts';

/** Row 12: crowds of readers that read nothing, or all reconnect at once. */

const STALLED = process.env['LONG'] ? 1_000 : 200;
const RECONNECTING = process.env['LONG'] ? 2_000 : 300;

const MB = 1024 * 1024;
/** What the API may use without readers, including the text of the turn in several forms. */
const BASE_BYTES = 256 * MB;
/** ... and per reader. */
const READER_BYTES = MB / 2;
const CHUNK = 'x'.repeat(32 * 1024);
/** Somewhat less than the most that one message may have. */
const MESSAGE_BYTES = 30 * CHUNK.length;
const MESSAGES = 9;
/** Twice what the kernel takes for a reader: the rest would have to wait in the API. */
const TEXT_BYTES = MESSAGES * MESSAGE_BYTES;

/** The limit for the latency of a word, also on a busy machine: readers that are blocked wait for 60 s. */
const IN_TIME_MS = 5_000;

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
    for (let bytes = 0; bytes < MESSAGE_BYTES; bytes += CHUNK.length) {
      await call.text(CHUNK).sent();
      await sleep(50);
    }
    const messages = call.request.messages.filter(({ role }) => role === 'assistant').length + 1;
    if (messages < MESSAGES) return call.toolCall('look', {}, `look_${messages}`).finish();
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
  expect(await worstDelay(300, 20), 'milliseconds from a word to its reader').toBeLessThan(IN_TIME_MS);
  await turn.until((frames) => lengthOf(frames) >= TEXT_BYTES);
  // These get the text from the log, in the longest events that there are.
  await stallMore();
  expect(await worstDelay(100, 20), 'milliseconds from a word to its reader').toBeLessThan(IN_TIME_MS);
  expect(await memory.stop(), 'bytes that the readers have cost').toBeLessThan(BASE_BYTES + STALLED * READER_BYTES);

  // Some resume reading, and have missed nothing.
  mayEnd.resolve();
  await turn.done;
  const [early, late] = [stalled[0], stalled.at(-1)];
  for (const reader of stalled) if (reader !== early && reader !== late) reader.abort.abort();
  for (const reader of [early, late]) {
    if (!reader) throw new Error('there are so many');
    const frames = await new EventReader(Promise.resolve(reader.response), reader.abort, frameOf).done;
    expect(folded(frames)).toEqual(folded(turn.frames));
  }
});

test(`${RECONNECTING} readers reconnect at once: all resume at their position, and do not delay others`, async () => {
  const said = pace('Speak slowly.', 40, 200);
  const turn = await it.recorder.turn(await it.session(), [{ type: 'user.message', content: 'Speak slowly.' }]);
  const api = it.recorder.as(it.recorder.ownerOf(turn.sessionId));
  const before = Array.from({ length: RECONNECTING }, () => api.subscribe(turn.sessionId, turn.turnId));
  for (const reader of before) await reader.says('w3 ');
  const memory = watchMemory();
  await it.fault(() => before.map((reader) => reader.close()));
  const after = before.map(({ frames }) =>
    api.subscribe(turn.sessionId, turn.turnId, frames.at(-1)?.sequence_number, 'header'),
  );
  await turn.done;
  for (const [i, reader] of after.entries()) {
    expect(folded(before[i]?.frames ?? [], await reader.done)).toEqual(folded(turn.frames));
  }
  expect(await memory.stop(), 'bytes that the readers have cost').toBeLessThan(
    BASE_BYTES + RECONNECTING * READER_BYTES,
  );
  expect(worstOf(turn, said), 'milliseconds from a word to its reader').toBeLessThan(IN_TIME_MS);
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

/** The highest latency of a word at the reader of another turn. */
async function worstDelay(words: number, pauseMs: number): Promise<number> {
  const said = pace('Speak quickly.', words, pauseMs);
  const turn = await it.recorder.turn(await it.session(), [{ type: 'user.message', content: 'Speak quickly.' }]);
  await turn.done;
  return worstOf(turn, said);
}

function worstOf(turn: RecordedTurn, said: number[]): number {
  let words = 0;
  let worst = 0;
  for (const { frame, at } of turn.recorded) {
    if (frame.type !== 'model.message.delta') continue;
    for (const word of (frame.content ?? '').match(/\d+/g) ?? []) {
      // Text that is sent again has nothing new.
      if (Number(word) < words) continue;
      worst = Math.max(worst, at - (said[words] ?? NaN));
      words += 1;
    }
  }
  expect(words).toBe(said.length);
  return worst;
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
