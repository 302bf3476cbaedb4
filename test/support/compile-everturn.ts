/** Loads the modules of all server processes, and exits: that is when Node writes its compile cache. */
import '../../src/cli/roles.ts';
import '../../src/server/all-in-one.ts';
import '../../src/server/standalone-api.ts';
import '../../src/server/standalone-worker.ts';
import '../../src/telemetry/temporal-runtime.ts';

process.exit(0);
