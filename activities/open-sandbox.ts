import { randomUUID } from 'node:crypto';
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { OpenSandboxResult, ThreadInput } from '../src/core/history.ts';
import type { NewRecord } from '../src/core/records/log.ts';
import { failUnlessTransient } from '../src/engine/retry.ts';
import { newId } from '../src/engine/new-id.ts';
import type { Catalog } from '../src/features/catalog.ts';
import type { SandboxHost } from '../src/features/code/host/sandbox-host.ts';
import { codeActionsOf } from '../src/spec/code-actions.ts';
import { errorMessage } from '../src/lib/errors.ts';
import { withHeartbeat } from '../src/temporal/activity-heartbeat.ts';
import { rejectResetRun } from '../src/temporal/reject-reset-run.ts';

/**
 * Returns the host that has the sandbox of the session. If there is none, or it is lost, this host gets the sandbox.
 * The row in the catalog decides that, so each attempt and each host has the same result.
 */
export function createOpenSandbox({
  catalog,
  host,
}: {
  catalog: Pick<Catalog, 'agents' | 'sandboxes'>;
  host: SandboxHost;
}) {
  return async function openSandbox(input: ThreadInput): Promise<OpenSandboxResult> {
    rejectResetRun(input);
    const { activityId, workflowExecution } = Context.current().info;
    const openedBy = `${workflowExecution?.runId} ${activityId}`;
    return withHeartbeat((attempts) =>
      failUnlessTransient(async () => {
        const own = { id: newId('sbx'), host: host.name, isolation: isolationOf(host), opened_by: openedBy };
        const row = await catalog.sandboxes.open({ session_id: input.sessionId, ...own }, Date.now());
        const { id: sandboxId, isolation } = row;
        const records: NewRecord[] = [];
        if (row.opened_by === openedBy) {
          const at = new Date().toISOString();
          const actions = codeActionsOf(await catalog.agents.spec(input.specHash));
          const network = host.network.within(actions?.network.allow ?? []);
          const data = { sandbox_id: sandboxId, isolation, network };
          records.push({ kind: 'feature.event', at, type: 'sandbox.created', threadId: null, data });
        }
        return attempts.addTo({ records, stamp: randomUUID(), host: row.host });
      }),
    );
  };
}

/** A host that starts no kernels now may do so later, and another host may: the turn waits for a minute. */
function isolationOf(host: SandboxHost): SandboxHost['isolation'] {
  try {
    return host.isolation;
  } catch (error) {
    throw ApplicationFailure.retryable(`this kernel host starts no kernels: ${errorMessage(error)}`, 'NoKernels');
  }
}
