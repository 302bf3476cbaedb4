/**
 * The unit tests that replace modules by `vi.mock`, and one that fills what a process may hold of responses. No other test
 * may share its modules with them.
 */
export const REPLACING_MODULES = [
  'src/lib/response-bounds.test.ts',
  'src/{engine/archiver,engine/complete-reliably,blobs/folder-blob-store,blobs/open-blob-store}.test.ts',
  'src/lib/mixed-addresses.test.ts',
  'src/features/code/kernel/network-proxy.test.ts',
  'activities/call-tool.test.ts',
  'workflows/turn-watch.test.ts',
];

/**
 * What `npm test` runs in addition to the unit tests: each main path of the product once. It needs Temporal and no other
 * program.
 */
export const CORE = `test/integration/{${[
  'api,approvals,cancel,continue-as-new,crash,errors,examples,forks,idempotency',
  'lists,recorded-histories,sub-agents,turns,validation',
].join()}}.test.ts`;

/** The tests that also run with their catalogs on PostgreSQL: those whose subject is what the catalog stores. */
export const ON_POSTGRES = `test/integration/{${[
  'agents-v2/agent-parts,agents-v2/list,agents-v2/queue,agents-v2/registered-agents,agents-v2/slots',
  'agents-v2/two-processes,agents-v2/webhooks',
  'agents,apart,catalog,catalog-plans,collect-blobs,delegation-catalog,delete-session,ended-kernels-catalog',
  'idempotency,lists,lost-turns,openapi,outages,permission-rules-catalog,postgres,retention,saved-tools-catalog',
  'schedules-catalog,session-index,session-lists,session-states,turns,unavailable,webhook-deliverer',
].join()}}.test.ts`;

/**
 * These run on PostgreSQL only. The generated requests of `openapi` find more faults there than on SQLite, the processes
 * of `apart` and `two-processes` would not share a file in production, and `agents-v2` has `list` and `slots` on both.
 */
export const ONLY_ON_POSTGRES = `test/integration/{${[
  'agents-v2/queue,agents-v2/two-processes,agents-v2/webhooks,apart,delete-session,openapi,postgres',
].join()}}.test.ts`;

/** They read what Temporal's runtime logs. It is installed once in a process, by the first test that needs it. */
export const READING_LOGS = 'test/integration/{logs,workflow-threads}.test.ts';

/** Bounds on the cost of a turn. */
export const BENCH = 'bench/bounds.test.ts';
