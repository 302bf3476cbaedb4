import {
  defaultPayloadConverter,
  workflowInfo,
  type Headers,
  type WorkflowInterceptors,
  type WorkflowOutboundCallsInterceptor,
} from '@temporalio/workflow';
import { REQUEST_HEADER, sessionIdOf, turnIdOf } from './ids.ts';

/** What travels from the command that creates a turn to all that is done for the turn. */
const CARRIED = new Set([REQUEST_HEADER]);

/** So many turns of a session are remembered: the one that runs, and those that are being archived. */
const MAX_TURNS = 50;

/**
 * Carries the origin of a turn along, in Temporal's headers: from the Update into the turn, from the turn into its
 * activities and its next run. Headers take no part in a replay, so a history that has none, or others, is as good. For
 * the same reason nothing here may wait: a tick more than before is another order of commands.
 */
export function interceptors(): WorkflowInterceptors {
  const { workflowId } = workflowInfo();
  const turnId = turnIdOf(workflowId);
  if (turnId !== undefined) return ofTurn(turnId);
  const sessionId = sessionIdOf(workflowId);
  return sessionId === undefined ? {} : ofSession(sessionId);
}

function ofTurn(turnId: string): WorkflowInterceptors {
  let origin: Headers = {};
  let sessionId: string | undefined;
  const outbound: WorkflowOutboundCallsInterceptor = {
    scheduleActivity: (input, next) => next({ ...input, headers: { ...input.headers, ...origin } }),
    continueAsNew: (input, next) => next({ ...input, headers: { ...input.headers, ...origin } }),
    getLogAttributes: (input, next) => next({ ...input, turnId, sessionId, requestId: requestIdOf(origin) }),
  };
  return {
    inbound: [
      {
        execute: (input, next) => {
          origin = originIn(input.headers);
          sessionId = fieldOf(input.args, 'sessionId');
          return next(input);
        },
      },
    ],
    outbound: [outbound],
  };
}

function ofSession(sessionId: string): WorkflowInterceptors {
  const origins = new Map<string, Headers>();
  const remember = (turnId: string, headers: Headers): void => {
    origins.set(turnId, originIn(headers));
    const [oldest] = origins.keys();
    if (origins.size > MAX_TURNS && oldest !== undefined) origins.delete(oldest);
  };
  /** The headers of what concerns a turn, whichever command or background task it is done for. */
  const withOrigin = ({ headers }: { headers: Headers }, args: unknown[]): { headers: Headers } => {
    const turnId = fieldOf(args, 'turnId');
    return { headers: { ...headers, ...(turnId !== undefined && origins.get(turnId)) } };
  };
  return {
    inbound: [
      {
        handleUpdate: (input, next) => {
          const turnId = fieldOf(input.args, 'turnId');
          if (turnId !== undefined) remember(turnId, input.headers);
          return next(input);
        },
      },
    ],
    outbound: [
      {
        startChildWorkflowExecution: (input, next) => next({ ...input, ...withOrigin(input, input.options.args) }),
        scheduleActivity: (input, next) => next({ ...input, ...withOrigin(input, input.args) }),
        scheduleLocalActivity: (input, next) => next({ ...input, ...withOrigin(input, input.args) }),
        getLogAttributes: (input, next) => next({ ...input, sessionId }),
      },
    ],
  };
}

function originIn(headers: Headers): Headers {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => CARRIED.has(name)));
}

function requestIdOf({ [REQUEST_HEADER]: payload }: Headers): string | undefined {
  return payload && defaultPayloadConverter.fromPayload<string>(payload);
}

/** A text of what a workflow, an activity or an update is given first. */
function fieldOf([first]: unknown[], name: 'sessionId' | 'turnId'): string | undefined {
  if (typeof first !== 'object' || first === null) return undefined;
  const value: unknown = Object.entries(first).find(([key]) => key === name)?.[1];
  return typeof value === 'string' ? value : undefined;
}
