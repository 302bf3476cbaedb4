import { hostname } from 'node:os';

/** By which Temporal names this process in histories, if it is a worker: process and host, as the SDK's default. */
export const WORKER_IDENTITY = `${process.pid}@${hostname()}`;
