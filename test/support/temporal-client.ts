import { Client, Connection, WorkflowNotFoundError } from '@temporalio/client';

/** What Temporal has, as an operator sees it. */
export class TemporalClient {
  readonly client: Client;
  readonly #connection: Connection;

  private constructor(connection: Connection, namespace: string) {
    this.#connection = connection;
    this.client = new Client({ connection, namespace });
  }

  static async connect({ address, namespace }: { address: string; namespace: string }): Promise<TemporalClient> {
    return new TemporalClient(await Connection.connect({ address }), namespace);
  }

  /** Whether there is a run of a workflow, open or closed. */
  async has(workflowId: string): Promise<boolean> {
    try {
      await this.client.workflow.getHandle(workflowId).describe();
      return true;
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return false;
      throw error;
    }
  }

  /** The runs of a workflow, as they are listed. */
  async runs(workflowId: string): Promise<number> {
    let runs = 0;
    for await (const _ of this.client.workflow.list({ query: `WorkflowId = '${workflowId}'` })) runs += 1;
    return runs;
  }

  close(): Promise<void> {
    return this.#connection.close();
  }
}
