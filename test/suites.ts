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
  'actions,agents,agents-v2/list,agents-v2/queue,agents-v2/slots,apart,api,approvals,catalog,collect-blobs',
  'delegation-catalog,delete-session,errors,forks,idempotency',
  'limits,lists,lost-turns,openapi,outages,postgres,retention,roles,session-index,session-lists,session-streams',
  'temporal-on-postgres,turns,unavailable,webhook-deliverer',
].join()}}.test.ts`;

/**
 * These run on PostgreSQL only. The generated requests of `openapi` find more faults there than on SQLite, and the
 * processes of `apart` would not share a file in production.
 */
export const ONLY_ON_POSTGRES = 'test/integration/{apart,openapi,postgres,temporal-on-postgres}.test.ts';

/** Bounds on the cost of a turn. */
export const BENCH = 'bench/bounds.test.ts';
