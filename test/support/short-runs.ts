import { workflowInfo, type WorkflowInterceptorsFactory } from '@temporalio/workflow';

/**
 * Has workflows continue as new after as many events as their memo says, on a server that never suggests it. A run begins
 * with three.
 */
export const interceptors: WorkflowInterceptorsFactory = () => ({
  internals: [
    {
      activate: (input, next) => {
        const info = workflowInfo();
        const { maxEvents = Infinity } = info.memo ?? {};
        // The SDK makes a new object for each activation.
        Object.assign(info, { continueAsNewSuggested: info.historyLength >= Number(maxEvents) });
        next(input);
      },
      concludeActivation: ({ commands }, next) => {
        // The test server's time stands still for ever for an activity that is scheduled by the task that ends its run.
        const last = commands.filter((one) => one.continueAsNewWorkflowExecution ?? one.completeWorkflowExecution);
        return next({ commands: last.length > 0 ? last : commands });
      },
    },
  ],
});
