import type { WorkflowClientInterceptor } from '@temporalio/client';
import { defaultPayloadConverter } from '@temporalio/common';
import { logScope } from '../telemetry/log-scope.ts';
import { REQUEST_HEADER } from '../../workflows/ids.ts';

/** Sends the id of the request along with the commands that it makes: `workflows/origin.ts` carries it on. */
export const requestHeader: WorkflowClientInterceptor = {
  startUpdateWithStart: (input, next) => {
    const { requestId } = logScope();
    if (requestId === undefined) return next(input);
    const updateHeaders = { ...input.updateHeaders, [REQUEST_HEADER]: defaultPayloadConverter.toPayload(requestId) };
    return next({ ...input, updateHeaders });
  },
};
