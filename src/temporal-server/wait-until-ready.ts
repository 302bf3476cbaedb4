import { setTimeout as sleep } from 'node:timers/promises';
import { Connection } from '@temporalio/client';

const ATTEMPT_MS = 1000;
const PAUSE_MS = 20;

/**
 * Waits until the server on a port of this machine answers for a namespace, which takes its frontend and its database.
 *
 * @throws if it does not within `timeoutMs`, or `signal` is aborted before
 */
export async function waitUntilReady({
  port,
  namespace,
  timeoutMs,
  signal,
}: {
  port: number;
  namespace: string;
  timeoutMs: number;
  signal: AbortSignal;
}): Promise<void> {
  const connection = Connection.lazy({
    address: `127.0.0.1:${port}`,
    // The client's own retries wait for seconds, and so does gRPC before it connects anew.
    interceptors: [],
    channelArgs: { 'grpc.initial_reconnect_backoff_ms': PAUSE_MS, 'grpc.max_reconnect_backoff_ms': PAUSE_MS },
  });
  const deadline = Date.now() + timeoutMs;
  try {
    for (;;) {
      signal.throwIfAborted();
      try {
        await connection.withDeadline(Math.min(deadline, Date.now() + ATTEMPT_MS), () =>
          connection.workflowService.describeNamespace({ namespace }),
        );
        return;
      } catch (error) {
        if (Date.now() >= deadline) throw error;
      }
      await sleep(PAUSE_MS, undefined, { signal });
    }
  } finally {
    await connection.close();
  }
}
