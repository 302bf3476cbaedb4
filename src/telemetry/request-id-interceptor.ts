import type { WorkflowClientInterceptor } from '@temporalio/client';
import { defaultPayloadConverter, type Headers } from '@temporalio/common';
import { logContext } from './log-context.ts';
import { REQUEST_HEADER } from '../core/temporal-names.ts';

/** Sends the request id as a header of commands; `workflows/context-propagation.ts` passes it on. */
export const requestHeader: WorkflowClientInterceptor = {
  startUpdateWithStart: (input, next) => next({ ...input, updateHeaders: { ...input.updateHeaders, ...header() } }),
  startWithDetails: (input, next) => next({ ...input, headers: { ...input.headers, ...header() } }),
};

function header(): Headers {
  const { requestId } = logContext();
  return requestId === undefined ? {} : { [REQUEST_HEADER]: defaultPayloadConverter.toPayload(requestId) };
}
