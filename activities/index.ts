import { createArchiveTurn } from './archive-turn.ts';
import { createCallModel } from './call-model.ts';
import { createCallTool } from './call-tool.ts';
import { createConnectTools } from './connect-tools.ts';
import type { Dependencies } from './dependencies.ts';
import { createEndSession } from './end-session.ts';
import { createInspectTurn } from './inspect-turn.ts';
import { createLoadSession } from './load-session.ts';
import { createRemoveSession } from './remove-session.ts';
import { createTerminateTurn } from './terminate-turn.ts';

/** Everything that touches the world, by the names under which workflows call it. */
export type Activities = ReturnType<typeof createActivities>;

export function createActivities(dependencies: Dependencies) {
  return {
    callModel: createCallModel(dependencies),
    callTool: createCallTool(dependencies),
    connectTools: createConnectTools(dependencies),
    archiveTurn: createArchiveTurn(dependencies),
    loadSession: createLoadSession(dependencies),
    inspectTurn: createInspectTurn(dependencies),
    terminateTurn: createTerminateTurn(dependencies),
    endSession: createEndSession(dependencies),
    removeSession: createRemoveSession(dependencies),
    /** For measuring how fast the server dispatches. */
    doNothing: () => Promise.resolve(),
  };
}
