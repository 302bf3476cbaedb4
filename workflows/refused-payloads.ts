import { log, type WorkflowInterceptors } from '@temporalio/workflow';

/**
 * How the encoding of a payload begins that the worker's codec has refused; the reason follows. No converter knows it, so
 * an Update with such an argument is rejected before it is accepted, and a workflow that was started with one never runs.
 */
export const REFUSED = 'refused';

/**
 * Drops the signals whose payloads were refused. Such a signal is in the history for ever, and its conversion would fail
 * the workflow task each time. It is dropped in each replay as well, since the codec refuses the same payloads.
 */
export function interceptors(): WorkflowInterceptors {
  return {
    internals: [
      {
        activate: ({ activation, ...input }, next) => {
          activation.jobs = (activation.jobs ?? []).filter(({ signalWorkflow }) => {
            const reason = signalWorkflow?.input?.map(refusal).find((text) => text !== undefined);
            if (reason !== undefined) log.warn(`the signal ${signalWorkflow?.signalName} was dropped: ${reason}`);
            return reason === undefined;
          });
          next({ ...input, activation });
        },
      },
    ],
  };
}

function refusal({ metadata }: { metadata?: Record<string, Uint8Array> | null }): string | undefined {
  const encoding = String.fromCharCode(...(metadata?.['encoding'] ?? []));
  return encoding.startsWith(REFUSED) ? encoding : undefined;
}
