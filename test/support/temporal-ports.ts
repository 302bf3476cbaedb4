import { once } from 'node:events';
import { createServer } from 'node:net';
import { portsOf } from '../../deploy/temporal/server-config.ts';

const FIRST = 10_000;
const LAST = 32_000;

/**
 * A port for a Temporal server on PostgreSQL, beside others on this machine. Below those that the system gives out, since
 * its tables hold no larger ones.
 */
export async function freeTemporalPort(): Promise<number> {
  for (;;) {
    const frontend = FIRST + Math.floor(Math.random() * (LAST - FIRST));
    const ports = Object.values(portsOf(frontend)).flatMap((service) => Object.values(service));
    const free = await Promise.all(ports.map(isFree));
    if (free.every(Boolean)) return frontend;
  }
}

async function isFree(port: number): Promise<boolean> {
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
