import { encodeToPayloadsWithContext } from './sdk-internals.ts';
import type { Client } from '@temporalio/client';
import type { CancelReason } from '../core/records/turn.ts';
import type { OLD_RULES } from '../core/temporal-names.ts';
import { isNotFound } from './errors.ts';

interface Run {
  workflowId: string;
  /** Default: the current or last run. */
  runId?: string;
}

/** Terminates a workflow. Does nothing if it has closed or does not exist. */
export async function terminateWorkflow(
  { connection, options }: Client,
  { workflowId, reason, details }: { workflowId: string; reason: string; details?: CancelReason | typeof OLD_RULES },
): Promise<void> {
  const { namespace, loadedDataConverter: converter } = options;
  const context = { type: 'workflow' as const, namespace, workflowId };
  const payloads = details && (await encodeToPayloadsWithContext(converter, context, [details]));
  await unlessWorkflowNotFound(() =>
    connection.workflowService.terminateWorkflowExecution({
      namespace,
      workflowExecution: { workflowId },
      reason,
      ...(payloads && { details: { payloads } }),
    }),
  );
}

/** Deletes a workflow run and its history. Does nothing if it does not exist. */
export async function deleteExecution({ connection, options }: Client, workflowExecution: Run): Promise<void> {
  await unlessWorkflowNotFound(() =>
    connection.workflowService.deleteWorkflowExecution({ namespace: options.namespace, workflowExecution }),
  );
}

async function unlessWorkflowNotFound(request: () => Promise<unknown>): Promise<void> {
  try {
    await request();
  } catch (error) {
    if (!isNotFound(error)) throw error;
  }
}
