import {
  defaultPayloadConverter,
  proxySinks,
  workflowInfo,
  type Headers,
  type Sinks,
  type WorkflowInterceptors,
} from '@temporalio/workflow';
import type { TurnResult, TurnStart } from '../src/core/history.ts';
import type { SessionStart } from '../src/core/session.ts';
import { turnContext, type TraceContext, type TurnSpan } from '../src/core/trace-context.ts';
import {
  deletedSessionIdOf,
  PREVIOUS_TRACE_HEADER,
  REQUEST_HEADER,
  sessionIdOf,
  TRACE_HEADER,
  turnIdOf,
} from '../src/core/temporal-names.ts';

/** Sinks of the worker; calls to them are not part of the history. */
export interface TraceSinks extends Sinks {
  traces: { turnEnded(span: TurnSpan): void };
}

/** The headers that a turn receives from the command that creates it. */
const PROPAGATED_HEADERS = new Set([REQUEST_HEADER, TRACE_HEADER, PREVIOUS_TRACE_HEADER]);

/** How many turns of a session are remembered: the running one and those before it, which the next may follow. */
const MAX_TURNS = 50;

/**
 * Propagates the request id and the trace of a turn in Temporal's headers: from the Update to the turn, and from the
 * turn to its activities and its next run. A session passes those of its newest turn to its next run, for the turn that
 * follows it. Also propagates the id of the request that deleted a session to the activities that remove it.
 *
 * A replay does not compare headers, so a history without them, or with others, replays. For the same reason the
 * interceptors must not await or draw random numbers: one more microtask can change the order of commands. They run
 * also on a worker without tracing, so that the next worker can trace.
 */
export function interceptors(): WorkflowInterceptors {
  const { workflowId } = workflowInfo();
  const turnId = turnIdOf(workflowId);
  if (turnId !== undefined) return turnInterceptors(turnId);
  const sessionId = sessionIdOf(workflowId);
  if (sessionId !== undefined) return sessionInterceptors(sessionId);
  const deleted = deletedSessionIdOf(workflowId);
  return deleted === undefined ? {} : removalInterceptors(deleted);
}

function turnInterceptors(turnId: string): WorkflowInterceptors {
  let received: Headers = {};
  let origin: Headers = {};
  let sessionId: string | undefined;
  return {
    inbound: [
      {
        execute: (input, next) => {
          received = only(PROPAGATED_HEADERS, input.headers);
          origin = originOf(received, turnId);
          // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the argument of a turn's workflow
          const start = input.args[0] as TurnStart;
          sessionId = start.sessionId;
          const running = next(input);
          reportEnd(received, start, running);
          return running;
        },
      },
    ],
    outbound: [
      {
        scheduleActivity: (input, next) => next({ ...input, headers: { ...input.headers, ...origin } }),
        continueAsNew: (input, next) => next({ ...input, headers: { ...input.headers, ...received } }),
        getLogAttributes: (input, next) => next({ ...input, turnId, sessionId, requestId: requestIdOf(origin) }),
      },
    ],
  };
}

function sessionInterceptors(sessionId: string): WorkflowInterceptors {
  const turns = new Map<string, Headers>();
  const remember = (turnId: string, headers: Headers): void => {
    turns.set(turnId, only(PROPAGATED_HEADERS, headers));
    const [oldest] = turns.keys();
    if (turns.size > MAX_TURNS && oldest !== undefined) turns.delete(oldest);
  };
  /** The headers of an activity that concerns a turn, whichever command or background task schedules it. */
  const withOrigin = ({ headers }: { headers: Headers }, args: unknown[]): { headers: Headers } => {
    const turnId = fieldOf(args, 'turnId');
    const received = turnId === undefined ? undefined : turns.get(turnId);
    return { headers: { ...headers, ...(turnId !== undefined && received && originOf(received, turnId)) } };
  };
  /** The headers of a turn that starts. */
  const forChild = ({ headers }: { headers: Headers }, args: unknown[]): { headers: Headers } => {
    const received = turns.get(fieldOf(args, 'turnId') ?? '');
    const previous = turns.get(fieldOf(args, 'previousTurnId') ?? '')?.[TRACE_HEADER];
    return { headers: { ...headers, ...received, ...(received && previous && { [PREVIOUS_TRACE_HEADER]: previous }) } };
  };
  return {
    inbound: [
      {
        execute: (input, next) => {
          const newest = newestOf(input.args);
          if (newest !== undefined) remember(newest, input.headers);
          return next(input);
        },
        handleUpdate: (input, next) => {
          const turnId = fieldOf(input.args, 'turnId');
          if (turnId !== undefined) remember(turnId, input.headers);
          return next(input);
        },
      },
    ],
    outbound: [
      {
        startChildWorkflowExecution: (input, next) => next({ ...input, ...forChild(input, input.options.args) }),
        scheduleActivity: (input, next) => next({ ...input, ...withOrigin(input, input.args) }),
        scheduleLocalActivity: (input, next) => next({ ...input, ...withOrigin(input, input.args) }),
        continueAsNew: (input, next) =>
          next({ ...input, headers: { ...input.headers, ...turns.get(newestOf(input.args) ?? '') } }),
        getLogAttributes: (input, next) => next({ ...input, sessionId }),
      },
    ],
  };
}

/** The removal of a session is not part of a trace, since it continues long after the request. */
function removalInterceptors(sessionId: string): WorkflowInterceptors {
  let request: Headers = {};
  return {
    inbound: [
      {
        execute: (input, next) => {
          request = only(new Set([REQUEST_HEADER]), input.headers);
          return next(input);
        },
      },
    ],
    outbound: [
      {
        scheduleActivity: (input, next) => next({ ...input, headers: { ...input.headers, ...request } }),
        getLogAttributes: (input, next) => next({ ...input, sessionId, requestId: requestIdOf(request) }),
      },
    ],
  };
}

/** The headers of a turn's activities, whose parent span is the turn's. */
function originOf(received: Headers, turnId: string): Headers {
  const { [REQUEST_HEADER]: request } = received;
  const parent = traceIn(received, TRACE_HEADER);
  const span = parent && turnContext(parent, turnId);
  return {
    ...(request && { [REQUEST_HEADER]: request }),
    ...(span && { [TRACE_HEADER]: defaultPayloadConverter.toPayload(span) }),
  };
}

/** Reports the turn's span to the worker when the turn ends, without delaying the workflow. */
function reportEnd(received: Headers, start: TurnStart, running: Promise<unknown>): void {
  const parent = traceIn(received, TRACE_HEADER);
  if (!parent) return;
  const { turnId, sessionId, previousTurnId, createdAt } = start;
  const before = traceIn(received, PREVIOUS_TRACE_HEADER);
  const previous = before && previousTurnId !== null ? turnContext(before, previousTurnId) : undefined;
  const { traces } = proxySinks<TraceSinks>();
  running.then(
    (result) => {
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the result of a turn's workflow
      const { status } = result as TurnResult;
      traces.turnEnded({
        parent,
        ...(previous && { previous }),
        turnId,
        sessionId,
        startedAt: Date.parse(createdAt),
        endedAt: Date.now(),
        status,
      });
    },
    // The run continues as new, so the turn has not ended.
    () => undefined,
  );
}

/** The newest turn of a session at the start of a run that continues an earlier one. */
function newestOf([start]: unknown[]): string | undefined {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the argument of a session's workflow
  return (start as SessionStart).state?.tip?.turnId;
}

function only(names: ReadonlySet<string>, headers: Headers): Headers {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => names.has(name)));
}

function requestIdOf({ [REQUEST_HEADER]: payload }: Headers): string | undefined {
  return payload && defaultPayloadConverter.fromPayload<string>(payload);
}

function traceIn(headers: Headers, name: string): TraceContext | undefined {
  const { [name]: payload } = headers;
  return payload && defaultPayloadConverter.fromPayload<TraceContext>(payload);
}

/** A string field of the first argument of a workflow, an activity or an update. */
function fieldOf([first]: unknown[], name: 'turnId' | 'previousTurnId'): string | undefined {
  if (typeof first !== 'object' || first === null) return undefined;
  const value: unknown = Object.entries(first).find(([key]) => key === name)?.[1];
  return typeof value === 'string' ? value : undefined;
}
