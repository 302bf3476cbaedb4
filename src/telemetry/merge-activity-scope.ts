import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import { defaultPayloadConverter } from '@temporalio/common';
import { inLogScope, type LogScope } from './log-context.ts';
import { REQUEST_HEADER, sessionIdOf } from '../core/temporal-names.ts';

/** Whatever an activity logs, and the SDK of it, says which turn, session and request it is for. */
export const activityScope: ActivityInterceptorsFactory = ({ info }) => {
  const scope: LogScope = {
    activityType: info.activityType,
    attempt: info.attempt,
    ...(info.workflowExecution && { runId: info.workflowExecution.runId }),
  };
  const ofWorkflow = sessionIdOf(info.workflowExecution?.workflowId ?? '');
  return {
    inbound: {
      execute: (input, next) => {
        const payload = input.headers[REQUEST_HEADER];
        if (payload) scope.requestId = defaultPayloadConverter.fromPayload<string>(payload);
        const { sessionId = ofWorkflow, turnId }: LogScope = input.args[0] ?? {};
        return inLogScope(Object.assign(scope, { sessionId, turnId }), () => next(input));
      },
    },
    outbound: {
      // The SDK's own lines about an activity come from outside of its scope.
      getLogAttributes: (input, next) => next({ ...input, ...scope }),
    },
  };
};
