import { AsyncLocalStorage } from 'node:async_hooks';

/** What the lines of a log belong to; the names are the same in every line that has them. */
export interface LogScope {
  requestId?: string | undefined;
  sessionId?: string | undefined;
  turnId?: string | undefined;
  /** Of an activity: its name, the try, and the run of the workflow that wants it. */
  activityType?: string;
  attempt?: number;
  runId?: string;
}

const scopes = new AsyncLocalStorage<LogScope>();

/** What is being worked on here; empty outside of every scope. */
export function logContext(): Readonly<LogScope> {
  return scopes.getStore() ?? {};
}

/** Runs `work`, whose lines all say what they belong to. */
export function withLogContext<T>(scope: LogScope, work: () => T): T {
  return scopes.run(scope, work);
}

/** Adds what has been found out about the work in hand to all of its lines to come. */
export function addLogContext(found: LogScope): void {
  const scope = scopes.getStore();
  if (scope) Object.assign(scope, found);
}

/** Runs `work` that outlives the request which has set it off, and serves others too: on its turn, for no request. */
export function withoutRequest<T>(work: () => T): T {
  const { sessionId, turnId } = logContext();
  return scopes.run({ sessionId, turnId }, work);
}

/** Runs `work` that somebody happens to set off and all will share: for no turn and no request, and in no trace. */
export const withoutContext: <T>(work: () => T) => T = AsyncLocalStorage.snapshot();
