import { AsyncLocalStorage } from 'node:async_hooks';

/** The fields that log lines have in common. */
export interface LogScope {
  requestId?: string | undefined;
  sessionId?: string | undefined;
  turnId?: string | undefined;
  /** For activities: the name, the attempt, and the run id of the workflow. */
  activityType?: string;
  attempt?: number;
  runId?: string;
}

const scopes = new AsyncLocalStorage<LogScope>();

/** The current context; empty outside of any. */
export function logContext(): Readonly<LogScope> {
  return scopes.getStore() ?? {};
}

/** Runs `work` with these fields in all of its log lines. */
export function withLogContext<T>(scope: LogScope, work: () => T): T {
  return scopes.run(scope, work);
}

/** Adds fields to all further log lines of the current context. */
export function addLogContext(found: LogScope): void {
  const scope = scopes.getStore();
  if (scope) Object.assign(scope, found);
}

/** Runs work that outlives its request: keeps the session and turn ids, drops the request id. */
export function withoutRequest<T>(work: () => T): T {
  const { sessionId, turnId } = logContext();
  return scopes.run({ sessionId, turnId }, work);
}

/** Runs work that callers share, without the context and the trace of the caller that happens to start it. */
export const withoutContext: <T>(work: () => T) => T = AsyncLocalStorage.snapshot();
