/**
 * What the program uses of Temporal's SDK beyond its public API: only here and in `sdk-worker-internals.ts`. A release of
 * the SDK may change any of it, so versions are pinned, and `sdk-internals.test.ts` fails when they change.
 */
export {
  decode,
  decodeArrayFromPayloads,
  decodeFailure,
  encodeToPayloadsWithContext,
} from '@temporalio/common/lib/internal-non-workflow/index.js';
export { msToNumber, msToTs, optionalTsToMs } from '@temporalio/common/lib/time.js';
