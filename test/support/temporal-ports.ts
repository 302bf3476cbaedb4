import { portsOf } from '../../deploy/temporal/server-config.ts';
import { isFree, randomPort } from './kept-port.ts';

/** A free port for a Temporal server on PostgreSQL; its tables hold none above 32767. */
export async function freeTemporalPort(): Promise<number> {
  for (;;) {
    const frontend = randomPort();
    const ports = Object.values(portsOf(frontend)).flatMap((service) => Object.values(service));
    const free = await Promise.all(ports.map(isFree));
    if (free.every(Boolean)) return frontend;
  }
}
