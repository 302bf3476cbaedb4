import { log, type WorkflowInterceptors } from '@temporalio/workflow';
import { REFUSED } from '../src/core/temporal-names.ts';

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
