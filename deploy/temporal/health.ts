import { once } from 'node:events';
import { createServer } from 'node:http';
import { Connection } from '@temporalio/client';
import { ProvisionError } from '../../src/lib/errors.ts';

/** Less than the time-out of deploy/healthy. */
const CHECK_MS = 4_000;

/**
 * Serves the health of a Temporal server on a port of 127.0.0.1: every request is answered by 200 if the server can
 * describe the namespace, which requires its frontend and its database, and otherwise by 503. In this process, because
 * loading Temporal's client for each check takes most of a second of processor time.
 *
 * @throws ProvisionError if the port is in use
 */
export async function serveHealth({
  port,
  address,
  namespace,
}: {
  port: number;
  address: string;
  namespace: string;
}): Promise<{ stop: () => Promise<void> }> {
  // No retries by the client, which outlast the check.
  const connection = Connection.lazy({ address, interceptors: [] });
  const isHealthy = () =>
    connection
      .withDeadline(Date.now() + CHECK_MS, () => connection.workflowService.describeNamespace({ namespace }))
      .then(
        () => true,
        () => false,
      );
  const server = createServer((_request, response) => {
    void isHealthy().then((healthy) => response.writeHead(healthy ? 200 : 503).end());
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening').catch((cause: unknown) => {
    throw new ProvisionError(`port ${port} cannot be listened on: choose another --health-port`, { cause });
  });
  return {
    stop: async () => {
      server.close();
      server.closeAllConnections();
      await connection.close();
    },
  };
}
