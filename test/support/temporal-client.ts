import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, Connection, WorkflowNotFoundError, type ClientOptions } from '@temporalio/client';
import { loadConfig } from '../../src/config.ts';
import type { CallModelInput } from '../../src/core/history.ts';
import { turnWorkflowId } from '../../src/core/temporal-names.ts';
import { Cipher } from '../../src/encryption/cipher.ts';
import { dataConverterFor } from '../../src/temporal/data-converter.ts';
import proto from '@temporalio/proto';
import { decodeArrayFromPayloads } from '../../src/temporal/sdk-internals.ts';
import { isNotFound } from '../../src/temporal/errors.ts';

/** Lets a client read the payloads of test servers, which are encrypted under `TEST_ENCRYPTION_KEYS`. */
export function testConverter(): Pick<ClientOptions, 'dataConverter'> {
  const { encryptionKeys } = loadConfig({ EVERTURN_ENCRYPTION_KEYS: process.env['TEST_ENCRYPTION_KEYS'] });
  const dataConverter = dataConverterFor(new Cipher(encryptionKeys));
  return dataConverter ? { dataConverter } : {};
}

/** An operator's access to Temporal. */
export class TemporalClient {
  readonly client: Client;
  readonly #connection: Connection;

  private constructor(connection: Connection, namespace: string) {
    this.#connection = connection;
    this.client = new Client({ connection, namespace, ...testConverter() });
  }

  static async connect({ address, namespace }: { address: string; namespace: string }): Promise<TemporalClient> {
    return new TemporalClient(await Connection.connect({ address }), namespace);
  }

  /** Whether a workflow has a run, open or closed. */
  async has(workflowId: string): Promise<boolean> {
    try {
      await this.client.workflow.getHandle(workflowId).describe();
      return true;
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return false;
      throw error;
    }
  }

  /** The number of a workflow's runs in the list. */
  async runs(workflowId: string): Promise<number> {
    let runs = 0;
    for await (const _ of this.client.workflow.list({ query: `WorkflowId = '${workflowId}'` })) runs += 1;
    return runs;
  }

  async terminate(workflowId: string): Promise<void> {
    await this.client.workflow.getHandle(workflowId).terminate('by an operator');
  }

  /** Deletes a workflow; resolves when none of its runs remains. */
  async delete(workflowId: string): Promise<void> {
    const { workflowService } = this.client;
    const { namespace } = this.client.options;
    await workflowService.deleteWorkflowExecution({ namespace, workflowExecution: { workflowId } });
    while (await this.has(workflowId)) await sleep(50);
  }

  /** The run ids from the first run of a workflow to its current one. */
  async lineage(workflowId: string): Promise<string[]> {
    const runs: string[] = [];
    let { runId } = await this.client.workflow.getHandle(workflowId).describe();
    while (runId) {
      runs.unshift(runId);
      const { events } = await this.client.workflow.getHandle(workflowId, runId).fetchHistory();
      runId = events?.[0]?.workflowExecutionStartedEventAttributes?.continuedExecutionRunId ?? '';
    }
    return runs;
  }

  /** The events of all runs of a workflow. */
  async events(workflowId: string): Promise<proto.temporal.api.history.v1.IHistoryEvent[]> {
    const runs = await this.lineage(workflowId);
    const histories = runs.map((runId) => this.client.workflow.getHandle(workflowId, runId).fetchHistory());
    return (await Promise.all(histories)).flatMap(({ events }) => events ?? []);
  }

  /** The inputs of the model calls that a turn has scheduled. */
  async modelCalls(turnId: string): Promise<CallModelInput[]> {
    const { loadedDataConverter } = this.client.options;
    const calls = (await this.events(turnWorkflowId(turnId))).flatMap((event) => {
      const { activityType, input } = event.activityTaskScheduledEventAttributes ?? {};
      return activityType?.name === 'callModel' ? [input?.payloads ?? []] : [];
    });
    const inputs = await Promise.all(calls.map((payloads) => decodeArrayFromPayloads(loadedDataConverter, payloads)));
    return inputs.map(([input]) => input as CallModelInput);
  }

  /** Whether a workflow has no pending task. */
  async isIdle(workflowId: string): Promise<boolean> {
    const { raw } = await this.client.workflow.getHandle(workflowId).describe();
    return !raw.pendingWorkflowTask;
  }

  /** The ids of the Updates that a run of a workflow, by default its current one, has accepted. */
  async accepts(workflowId: string, runId?: string): Promise<string[]> {
    const { events } = await this.client.workflow.getHandle(workflowId, runId).fetchHistory();
    return (events ?? []).flatMap(
      (event) => event.workflowExecutionUpdateAcceptedEventAttributes?.protocolInstanceId ?? [],
    );
  }

  /** The events in the history of a workflow's current run. */
  async length(workflowId: string): Promise<number> {
    return (await this.client.workflow.getHandle(workflowId).describe()).historyLength;
  }

  /** Whether a worker is executing a task of a workflow whose result Temporal does not have yet. */
  async hasTaskAtWorker(workflowId: string): Promise<boolean> {
    const { raw } = await this.client.workflow.getHandle(workflowId).describe();
    return (
      raw.pendingWorkflowTask?.state ===
      proto.temporal.api.enums.v1.PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED
    );
  }

  /** Whether an Update has reached a workflow, whatever its outcome. */
  async knowsUpdate(workflowId: string, updateId: string): Promise<boolean> {
    const { namespace } = this.client.options;
    const updateRef = { workflowExecution: { workflowId }, updateId };
    try {
      await this.client.workflowService.pollWorkflowExecutionUpdate({ namespace, updateRef, waitPolicy: {} });
      return true;
    } catch (error) {
      if (isNotFound(error)) return false;
      throw error;
    }
  }

  /** Resets a workflow to the first or last task of a run, by default the current one. */
  async reset(workflowId: string, to: 'first' | 'last', runId?: string): Promise<void> {
    const { events } = await this.client.workflow.getHandle(workflowId, runId).fetchHistory();
    const tasks = (events ?? []).filter((event) => event.workflowTaskCompletedEventAttributes);
    const task = to === 'first' ? tasks[0] : tasks.at(-1);
    await this.client.workflowService.resetWorkflowExecution({
      namespace: this.client.options.namespace,
      workflowExecution: { workflowId, runId: runId ?? null },
      workflowTaskFinishEventId: task?.eventId ?? null,
      requestId: randomUUID(),
      reason: 'by an operator',
    });
  }

  /** Polls for workflow tasks as a worker does, and fails them, until one belonged to this workflow. */
  async failTask(taskQueue: string, workflowId: string): Promise<void> {
    const { workflowService } = this.client;
    const { namespace } = this.client.options;
    for (;;) {
      const { taskToken, workflowExecution } = await this.#connection.withDeadline(Date.now() + 70_000, () =>
        workflowService.pollWorkflowTaskQueue({ namespace, taskQueue: { name: taskQueue }, identity: 'failing' }),
      );
      if (taskToken.length === 0) continue;
      const failure = { message: 'on purpose' };
      await workflowService.respondWorkflowTaskFailed({ namespace, taskToken, failure, identity: 'failing' });
      if (workflowExecution?.workflowId === workflowId) return;
    }
  }

  close(): Promise<void> {
    return this.#connection.close();
  }
}
