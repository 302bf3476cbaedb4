/** The parts of Temporal's SDK beyond its public API that tests use, in addition to `src/temporal/sdk-internals.ts`. */
export { encodeErrorToFailure, loadDataConverter } from '@temporalio/common/lib/internal-non-workflow/index.js';
export { historyFromJSON, historyToJSON } from '@temporalio/common/lib/proto-utils.js';
