import type { Appended, AppendingActivity, AppendingInputs } from '../src/core/history.ts';
import { createArchiveTurn } from './archive-turn.ts';
import { createCallModel } from './call-model.ts';
import { createCallTool } from './call-tool.ts';
import { createConnectTools } from './connect-tools.ts';
import type { createCallsInSandbox } from './call-in-sandbox.ts';
import type { Dependencies } from './dependencies.ts';
import { cancelAtDeadline } from '../src/engine/turn-deadline.ts';
import { createForceDelegate, createStopDelegate } from './control-delegate.ts';
import { createEndSession } from './end-session.ts';
import { createInspectTurn } from './inspect-turn.ts';
import { createLoadSession } from './load-session.ts';
import type { createOpenSandbox } from './open-sandbox.ts';
import { createRemoveSession } from './remove-session.ts';
import { createRunSchedule } from './run-schedule.ts';
import { createTerminateTurn } from './terminate-turn.ts';

/** All side effects of workflows, by the names under which workflows call them. */
export type Activities = ReturnType<typeof createActivities> &
  // Kernel hosts run these, not workers: see `src/server/kernel-host.ts`.
  Pick<ReturnType<typeof createCallsInSandbox>, 'resumeCell' | 'interruptCell'> & {
    openSandbox: ReturnType<typeof createOpenSandbox>;
  };

export function createActivities(dependencies: Dependencies) {
  /** Cancels the turn at its deadline, and hints to its readers that the activity's result follows. */
  const ofTurn =
    <I extends { turnId: string; deadline: number }, R>(activity: (input: I) => Promise<R>) =>
    async (input: I): Promise<R> => {
      try {
        return await cancelAtDeadline(dependencies.client, input.deadline, () => activity(input));
      } finally {
        dependencies.bus.hint(`growth:${input.turnId}`);
      }
    };
  const appending = {
    callModel: ofTurn(createCallModel(dependencies)),
    callTool: ofTurn(createCallTool(dependencies)),
    connectTools: ofTurn(createConnectTools(dependencies)),
  } satisfies {
    [Name in Exclude<AppendingActivity, 'openSandbox' | 'resumeCell'>]: (
      input: AppendingInputs[Name],
    ) => Promise<Appended>;
  };
  return {
    ...appending,
    archiveTurn: createArchiveTurn(dependencies),
    loadSession: createLoadSession(dependencies),
    inspectTurn: createInspectTurn(dependencies),
    terminateTurn: createTerminateTurn(dependencies),
    forceDelegate: createForceDelegate(dependencies),
    stopDelegate: createStopDelegate(dependencies),
    endSession: createEndSession(dependencies),
    removeSession: createRemoveSession(dependencies),
    runSchedule: createRunSchedule(dependencies),
  };
}
