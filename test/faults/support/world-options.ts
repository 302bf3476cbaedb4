import type { Postgres } from '../../support/postgres.ts';
import type { DynamicConfig } from '../../../src/temporal-server/dynamic-config.ts';
import type { Plan } from './plan.ts';

/** Without limits: admission is not a subject of the fault tests. */
export const NO_LIMITS = {
  EVERTURN_REQUESTS_PER_MINUTE: '0',
  EVERTURN_TURNS_PER_SUBJECT: '0',
  EVERTURN_TURNS: '0',
  EVERTURN_STREAMS_PER_SUBJECT: '0',
  EVERTURN_STREAMS: '0',
};

/** Short enough that the workflows of sessions end, and start again, between the turns of every scenario. */
export const SOON_IDLE = { EVERTURN_SESSION_IDLE_SECONDS: '0.5' };

/** For scenarios in which something happens to the running workflow of a session without a turn. */
export const NEVER_IDLE = { EVERTURN_SESSION_IDLE_SECONDS: '3600' };

/** The steps of a plan, as given to a session. */
export type Steps = (Omit<Plan['steps'][number], 'tools'> & {
  tools?: { name: string; args?: Record<string, unknown> }[];
})[];

export interface WorldOptions {
  apis?: number;
  workers?: number;
  /** How many kernel hosts it has, and their Python: see `kernelPython`. */
  kernels?: { hosts: number; python: string };
  env?: Record<string, string>;
  /** Dynamic configuration of Temporal. */
  dynamicConfig?: DynamicConfig;
  /** Parts of the agent's spec, in addition to its model and its tools. */
  spec?: object;
  /** For the catalog; default: SQLite. */
  postgres?: Postgres;
  /** Whether Temporal is on `postgres` as well. */
  hasTemporalOnPostgres?: boolean;
  /** Names of MCP servers in addition to `test`; all have the same tools. */
  servers?: string[];
  /** With an MCP server that requires users to sign in, `vault`. */
  hasVault?: boolean;
  /** With a webhook that gets all events. */
  isNotified?: boolean;
}
