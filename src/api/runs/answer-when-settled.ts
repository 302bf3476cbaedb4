import type { Response } from 'express';
import { disconnection } from '../http/disconnection.ts';
import { toApiError } from '../http/errors.ts';
import { runErrors } from './errors.ts';
import type { Run } from './wire/run.ts';

/** Proxies and clients give up on a connection that is silent for longer. */
const HEARTBEAT_MS = 15_000;

/**
 * Sends the headers at once, and the run as soon as `follow` has it. Until then a space is sent from time to time: JSON
 * may begin with white space. `follow` is aborted when the client disconnects, which does not affect the run. If it
 * fails, the body is that of an error: the status was sent.
 */
export async function answerWhenSettled(
  response: Response,
  follow: (signal: AbortSignal) => Promise<Run>,
): Promise<void> {
  response.type('application/json').flushHeaders();
  const heartbeat = setInterval(() => response.write(' '), HEARTBEAT_MS);
  try {
    response.end(JSON.stringify(await follow(disconnection(response))));
  } catch (error) {
    const apiError = toApiError(error);
    const { status, body } = runErrors.answer(apiError);
    if (status >= 500) response.req.log.error({ err: apiError.cause ?? error }, apiError.message);
    response.end(JSON.stringify(body));
  } finally {
    clearInterval(heartbeat);
  }
}
