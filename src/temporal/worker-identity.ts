import { hostname } from 'node:os';

/** The name of this process in Temporal's histories, if it is a worker: process and host, as the SDK's default. */
export const WORKER_IDENTITY = `${process.pid}@${hostname()}`;
