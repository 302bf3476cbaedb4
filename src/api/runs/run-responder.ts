import type { Response } from 'express';
import { hasTurn } from '../../engine/access.ts';
import { runNotFound, type Run } from '../../engine/runs.ts';
import { unlessNotFound } from '../../engine/turn-log-reader.ts';
import type { ApiContext } from '../http/context.ts';
import { EventStream } from '../http/event-stream.ts';
import { answerWhenSettled } from './answer-when-settled.ts';
import { followRun, type FollowOptions } from './follow-run.ts';
import { runHeader } from './run-header.ts';
import { limitsOf } from './run-limits.ts';
import { streamRun } from './stream-run.ts';
import { DEFAULT_WAIT_SECONDS, type Answering } from './wire/request.ts';
import type { Run as RunResource } from './wire/run.ts';

type StreamOptions = Pick<Parameters<typeof streamRun>[0], 'cursor' | 'lease' | 'created'>;

/** The responses of the routes of a run. */
export class RunResponder {
  readonly #context: ApiContext;

  constructor(context: ApiContext) {
    this.#context = context;
  }

  /** Responds with the run or with its stream, as the request asks. `options` is for the stream. */
  async respond(found: Run, body: Answering, response: Response, options: StreamOptions): Promise<void> {
    if (body.stream) return this.stream(found, response, options);
    nameRun(response, found);
    const { created } = options;
    const waitMs = (body.wait_seconds ?? DEFAULT_WAIT_SECONDS) * 1000;
    await answerWhenSettled(response, (options) => this.follow(found, { waitMs, created, ...options }));
  }

  /** @throws ApiError or EngineError, before anything is sent */
  async stream(found: Run, response: Response, options: StreamOptions): Promise<void> {
    const { runId, session, reader, turnId, sessionId } = found;
    const { catalog, metrics } = this.#context;
    // Following the log of a run that was interrupted before it began would give an empty stream.
    if (!options.created && !(await hasTurn(this.#context, session, turnId))) throw runNotFound(runId);
    const limits = limitsOf(await catalog.agents.spec(session.spec_hash));
    nameRun(response, found);
    const stream = new EventStream(response, metrics);
    const run = runHeader(session);
    const streaming = streamRun({ context: this.#context, run, reader, limits, turnId, sessionId, stream, ...options });
    if ((await unlessNotFound(streaming.then(() => true))) === undefined) throw runNotFound(runId);
  }

  /** The run when it has ended or pauses, or after the time to wait. @throws EngineError */
  async follow(found: Run, options: FollowOptions): Promise<RunResource> {
    const followed = await unlessNotFound(followRun(this.#context, found, options));
    if (!followed) throw runNotFound(found.runId);
    return followed.output.run(runHeader(found.session), found.reader);
  }
}

function nameRun(response: Response, { runId }: Run): void {
  response.set({ 'x-run-id': runId, 'content-location': `/v1/runs/${runId}` });
}
