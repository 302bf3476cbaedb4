import { createServer } from 'node:net';
import { isMainThread } from 'node:worker_threads';
import { measureStretches } from './main-thread.ts';

/**
 * Loaded into a server by `NODE_OPTIONS=--import=…`: each connection to the socket EVENT_LOOP_PROBE gets for how long,
 * at most, the main thread has blocked the event loop since the previous connection, in the unit of `MAX_STRETCH_MS`.
 */
if (isMainThread) {
  const stretches = measureStretches();
  createServer((socket) => socket.end(String(stretches.longest())))
    .listen(process.env['EVENT_LOOP_PROBE'])
    .unref();
}
