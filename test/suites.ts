/**
 * What `npm test` runs in addition to the unit tests: each main path of the product once. It needs Temporal and no other
 * program.
 */
export const CORE = `test/integration/{${[
  'api,approvals,cancel,continue-as-new,crash,errors,examples,forks,idempotency',
  'lists,recorded-histories,sub-agents,turns,validation',
].join()}}.test.ts`;

/** The tests that also run with their catalogs on PostgreSQL: those whose subject depends on the catalog. */
export const ON_POSTGRES = `test/integration/{${[
  'agents-v2/agent-parts,agents-v2/list,agents-v2/queue,agents-v2/registered-agents,agents-v2/slots',
  'agents-v2/two-processes,agents-v2/webhooks',
  'actions,agents,apart,api,approvals,catalog,collect-blobs,delegation-catalog,delete-session,errors,forks,idempotency',
  'limits,lists,lost-turns,openapi,outages,postgres,retention,roles,schedules-catalog,session-index,session-lists',
  'session-streams,temporal-on-postgres,turns,unavailable,webhook-deliverer',
].join()}}.test.ts`;

/**
 * These run on PostgreSQL only. The generated requests of `openapi` find more faults there than on SQLite, and the
 * processes of `apart` and `two-processes` would not share a file in production.
 */
export const ONLY_ON_POSTGRES =
  'test/integration/{agents-v2/two-processes,apart,openapi,postgres,temporal-on-postgres}.test.ts';

/** Bounds on the cost of a turn. */
export const BENCH = 'bench/bounds.test.ts';
