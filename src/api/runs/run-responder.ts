import type { Response } from 'express';
import { hasTurn } from '../../engine/access.ts';
import { runNotFound, type FoundRun } from '../../features/run-support/runs.ts';
import { unlessNotFound } from '../../engine/turn-log-reader.ts';
import type { ApiContext } from '../http/context.ts';
import { disconnection } from '../http/disconnection.ts';
import { toApiError } from '../http/errors.ts';
import { EventStream } from '../http/event-stream.ts';
import { runErrors } from './errors.ts';
import { followRun, type FollowRunOptions } from './follow-run.ts';
import { toRunHeader } from './run-header.ts';
import { runLimitsOf } from './run-limits.ts';
import { streamRun } from './stream-run.ts';
import { DEFAULT_WAIT_SECONDS, type ResponseOptions } from './wire/request.ts';
import type { Run } from './wire/run.ts';

/** Proxies and clients give up on a connection that is silent for longer. */
const HEARTBEAT_MS = 15_000;

type StreamOptions = Pick<Parameters<typeof streamRun>[0], 'cursor' | 'lease' | 'created'>;

/** The responses of the routes of a run. */
export class RunResponder {
  readonly #context: ApiContext;

  constructor(context: ApiContext) {
    this.#context = context;
  }

  /** Responds with the run or with its stream, as the request asks. `options` is for the stream. */
  async respond(found: FoundRun, body: ResponseOptions, response: Response, options: StreamOptions): Promise<void> {
    if (body.stream) return this.stream(found, response, options);
    nameRun(response, found);
    const { created } = options;
    const waitMs = (body.wait_seconds ?? DEFAULT_WAIT_SECONDS) * 1000;
    await respondWhenSettled(response, (options) => this.follow(found, { waitMs, created, ...options }));
  }

  /** @throws ApiError or EngineError, before anything is sent */
  async stream(found: FoundRun, response: Response, options: StreamOptions): Promise<void> {
    const { runId, session, reader, turnId, sessionId } = found;
    const { catalog, metrics } = this.#context;
    // Following the log of a run that was interrupted before it began would give an empty stream.
    if (!options.created && !(await hasTurn(this.#context, session, turnId))) throw runNotFound(runId);
    const limits = runLimitsOf(await catalog.agents.spec(session.spec_hash));
    nameRun(response, found);
    const stream = new EventStream(response, metrics);
    const run = toRunHeader(session);
    const streaming = streamRun({ context: this.#context, run, reader, limits, turnId, sessionId, stream, ...options });
    if ((await unlessNotFound(streaming.then(() => true))) === undefined) throw runNotFound(runId);
  }

  /** The run when it has ended or pauses, or after the time to wait. @throws EngineError */
  async follow(found: FoundRun, options: FollowRunOptions): Promise<Run> {
    const followed = await unlessNotFound(followRun(this.#context, found, options));
    if (!followed) throw runNotFound(found.runId);
    return followed.output.run(toRunHeader(found.session), found.reader);
  }
}

function nameRun(response: Response, { runId }: FoundRun): void {
  response.set({ 'x-run-id': runId, 'content-location': `/v1/runs/${runId}` });
}

/**
 * Sends the headers when the run has been read, and the run as soon as `follow` has it. Until then a space is sent from
 * time to time: JSON may begin with white space. `follow` is aborted when the client disconnects, which does not affect
 * the run. A later failure can have no status: the connection is closed in the middle of the body, so that no client
 * takes it for a run.
 * @throws the errors of `follow` before the headers are sent
 */
export async function respondWhenSettled(
  response: Response,
  follow: (options: Required<Pick<FollowRunOptions, 'signal' | 'onRead'>>) => Promise<Run>,
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
    const { status } = runErrors.toResponse(apiError);
    if (status >= 500) response.req.log.error({ err: apiError.cause ?? error }, apiError.message);
    response.destroy();
  } finally {
    clearInterval(heartbeat);
  }
}
