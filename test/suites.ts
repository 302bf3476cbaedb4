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

/** The one of these whose tests crash together, for which all of them must run at once (`maxConcurrency` of its process). */
export const CRASHING = 'test/integration/crash.test.ts';

/** The tests that also run with their catalogs on PostgreSQL: those whose subject is what the catalog stores. */
export const ON_POSTGRES = `test/integration/{${[
  'agents-v2/agent-parts,agents-v2/list,agents-v2/queue,agents-v2/registered-agents,agents-v2/slots',
  'agents-v2/two-processes,agents-v2/webhooks',
  'agents,apart,catalog,catalog-plans,collect-blobs,delegation-catalog,delete-session,ended-kernels-catalog',
  'idempotency,lists,lost-turns,openapi,outages,permission-rules-catalog,postgres,retention,saved-tools-catalog',
  'schedules-catalog,session-index,session-lists,session-states,unavailable,webhook-deliverer',
].join()}}.test.ts`;

/**
 * These run on PostgreSQL only. The generated requests of `openapi` find more faults there than on SQLite, the processes
 * of `apart` and `two-processes` would not share a file in production, and `agents-v2` has `list` and `slots` on both.
 */
export const ONLY_ON_POSTGRES = `test/integration/{${[
  'agents-v2/queue,agents-v2/two-processes,agents-v2/webhooks,apart,delete-session,openapi,postgres',
].join()}}.test.ts`;

/**
 * The fault scenario that CI runs: all processes are killed at once, under turns of all kinds. The others take fourteen
 * times as long together, and run nightly: their subjects have integration tests without faults, and random faults find
 * what they find over many schedules. `npm run test:faults` runs all.
 */
export const FAULTS = 'test/faults/killed-everything.test.ts';

/**
 * The integration tests that take more than a third of the processor time of all, and run nightly: what installs programs
 * and starts many of them, such as the guides that start servers, what reads the data of earlier versions, servers of
 * others and the SDK of another in code actions, rolling deploys, and answers, cells and commands that are made to do harm,
 * whose bounds also have unit tests.
 */
export const AT_NIGHT = `test/integration/{${[
  'agents-v2/queue-crash,auth-hostile-answers,code/command-escapes,code/example,code/hostile-cells,code/many-calls',
  'code/python-sdk,compose,delegation-crash,embedded-temporal,first-start,guides-with-servers,hostile-answers',
  'interrupted-starts,mcp-hostile-answers,mcp-kinds-of-servers,mcp-servers-of-others,model-hostile-answers',
  'old-data-folder,old-turns,read-only-worker,rolling-deploys,slow-temporal,stdio-servers,tracing-restarts',
  'turn-inspect,unbreakable-histories',
].join()}}.test.ts`;

/** They read what Temporal's runtime logs. It is installed once in a process, by the first test that needs it. */
export const READING_LOGS = 'test/integration/{logs,workflow-threads}.test.ts';

/** Bounds on the cost of a turn. */
export const BENCH = 'bench/bounds.test.ts';
