import type { Response } from 'express';
import { disconnection } from '../http/disconnection.ts';
import { toApiError } from '../http/errors.ts';
import { runErrors } from './errors.ts';
import type { FollowOptions } from './follow-run.ts';
import type { Run } from './wire/run.ts';

/** Proxies and clients give up on a connection that is silent for longer. */
const HEARTBEAT_MS = 15_000;

/**
 * Sends the headers when the run has been read, and the run as soon as `follow` has it. Until then a space is sent from
 * time to time: JSON may begin with white space. `follow` is aborted when the client disconnects, which does not affect
 * the run. What fails later can have no status: the connection is closed in the middle of the body, so that no client
 * takes it for a run.
 * @throws the errors of `follow` before the headers are sent
 */
export async function answerWhenSettled(
  response: Response,
  follow: (options: Required<Pick<FollowOptions, 'signal' | 'onRead'>>) => Promise<Run>,
): Promise<void> {
  const begin = (): void => void (response.headersSent || response.type('application/json').flushHeaders());
  const heartbeat = setInterval(() => {
    begin();
    response.write(' ');
  }, HEARTBEAT_MS);
  try {
    const run = await follow({ signal: disconnection(response), onRead: begin });
    begin();
    response.end(JSON.stringify(run));
  } catch (error) {
    if (!response.headersSent) throw error;
    const apiError = toApiError(error);
    const { status } = runErrors.answer(apiError);
    if (status >= 500) response.req.log.error({ err: apiError.cause ?? error }, apiError.message);
    response.destroy();
  } finally {
    clearInterval(heartbeat);
  }
}
