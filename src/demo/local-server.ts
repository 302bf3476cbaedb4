import { createServer, type RequestListener } from 'node:http';

/** A server of our own for this machine only. */
export interface LocalServer {
  url: string;
  stop: () => Promise<void>;
}

/** Listens on a free loopback port. */
export async function listen(listener: RequestListener, path: string): Promise<LocalServer> {
  const server = createServer(listener);
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', resolve);
  });
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('the server has no port');
  return {
    url: `http://127.0.0.1:${address.port}${path}`,
    stop: async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      server.closeAllConnections();
      await closed;
    },
  };
}
