import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';

/** A server for this machine only. */
export interface LocalServer {
  url: string;
  stop: () => Promise<void>;
}

/** Loopback names. A web page could reach the server under another name that resolves to it (DNS rebinding). */
const LOOPBACK_HOST = /^(?:localhost|127\.0\.0\.1|\[::1\])(?::\d+)?$/;

/** Listens on a free loopback port. Requests with a Host that is no loopback name, or while not `isOpen`, get 403. */
export async function listen(
  listener: RequestListener,
  path: string,
  isOpen: () => boolean = () => true,
): Promise<LocalServer> {
  const server = createServer((request, response) => {
    if (isOpen() && LOOPBACK_HOST.test(request.headers.host ?? '')) listener(request, response);
    else response.writeHead(403).end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
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
