import { setTimeout as sleep } from 'node:timers/promises';
import { Connection } from '@temporalio/client';

const ATTEMPT_MS = 1000;
const PAUSE_MS = 20;

/**
 * Waits until the server on a local port can describe a namespace, which requires its frontend and its database.
 *
 * @throws an error if it cannot within `timeoutMs`, or if `signal` is aborted first
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
    // No retries by the client, which wait for seconds; gRPC would also wait that long before it reconnects.
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
