import { afterEach, expect, test } from 'vitest';
import { ResponseGauge, boundedResponse } from './response-bounds.ts';

const MIB = 1024 * 1024;
const BOUNDS = { maxBytes: 4 * MIB };
/** The process holds this many answers of the largest size, before they are complete. */
const MOST = 32;

const gauges: ResponseGauge[] = [];
afterEach(() => gauges.splice(0).forEach((gauge) => gauge.release()));

/** Receives `bytes` of an answer that does not end. */
function receive(bytes = 4 * MIB): ResponseGauge {
  const gauge = new ResponseGauge(BOUNDS, 'document');
  gauges.push(gauge);
  for (let rest = new Uint8Array(bytes).fill(0x20); rest.length > 0;) rest = rest.subarray(gauge.take(rest));
  return gauge;
}

test('incomplete answers of at most 128 MiB are kept at once, in the whole process', () => {
  for (let i = 0; i < MOST; i++) receive();
  expect(() => receive(1)).toThrow('too many large answers are being received at once');
  gauges[0]?.release();
  expect(() => receive(1)).not.toThrow();
});

const ENDS: Record<string, (response: Response) => Promise<unknown>> = {
  'is complete': (response) => response.text(),
  'is not read to its end': (response) => readOnce(response).then((reader) => reader.cancel()),
  'breaks off': (response) => response.text().catch(() => undefined),
  'is too large': (response) => response.text().catch(() => undefined),
};

test('an answer does not count any more that has ended, however', async () => {
  for (let i = 0; i < MOST - 1; i++) receive();
  for (const [how, use] of Object.entries(ENDS)) {
    for (let i = 0; i < 3; i++) await use(boundedResponse(answer(how), BOUNDS));
    expect(() => receive(4 * MIB - 1), `one that ${how}`).not.toThrow();
    gauges.pop()?.release();
  }
});

/** An answer of 3 MiB, then its end. */
function answer(how: string): Response {
  let parts = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      parts += 1;
      if (parts <= 3 || (how === 'is too large' && parts <= 5)) controller.enqueue(new Uint8Array(MIB).fill(0x20));
      else if (how === 'breaks off') controller.error(new Error('the connection broke'));
      else controller.close();
    },
  });
  return new Response(body);
}

async function readOnce(response: Response): Promise<ReadableStreamDefaultReader<Uint8Array>> {
  const reader = response.body?.getReader();
  if (!reader) throw new Error('no body');
  await reader.read();
  return reader;
}
