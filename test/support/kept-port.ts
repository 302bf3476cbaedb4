import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below the ports that the system assigns by itself. */
const FIRST = 10_000;
const LAST = 32_000;

/** A port of 127.0.0.1 for a server that is restarted: the system does not assign it to others meanwhile. */
export async function keptPort(): Promise<number> {
  const [port = 0] = await keptPorts(1);
  return port;
}

/** The same for a server that needs several, which are in a row. */
export async function keptPorts(count: number): Promise<number[]> {
  for (;;) {
    const first = randomPort();
    const ports = Array.from({ length: count }, (_, i) => first + i);
    const free = await Promise.all(ports.map(isFree));
    if (free.every(Boolean)) return ports;
  }
}

export function randomPort(): number {
  return FIRST + Math.floor(Math.random() * (LAST - FIRST));
}

export async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  const free = new Promise<boolean>((resolve) => {
    server.once('error', () => resolve(false)).once('listening', () => resolve(true));
  });
  server.listen(port, '127.0.0.1');
  if (!(await free)) return false;
  server.close();
  await once(server, 'close');
  return true;
}
