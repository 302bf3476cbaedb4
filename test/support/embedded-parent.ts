/** Starts only the embedded Temporal of an Everturn; prints its address and waits to be killed. */
import { pino } from 'pino';
import { startEmbeddedTemporal } from '../../src/temporal-server/embedded-server.ts';

const [, , dataDir = '', binary = '', namespace = ''] = process.argv;
const { address } = await startEmbeddedTemporal({ dataDir, binary, namespace, log: pino({ level: 'silent' }) });
console.log(address);
setInterval(() => {}, 60_000);
