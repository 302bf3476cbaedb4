import { z } from 'zod';
import type { LogRecord } from '../../../core/records/log.ts';

/** The query of the routes that give events. */
export const viewQuery = {
  view: z
    .enum(['default', 'full'], { error: 'must be default or full' })
    .default('default')
    .describe('`full`: with all events, for clients that accept types which older ones do not know'),
};

export type View = z.infer<typeof viewQuery.view>;

/** Whether a reader gets the event of a record: a client that does not know its type would fail. */
export function isInView(record: LogRecord, view: View): boolean {
  if (view === 'full') return true;
  if (record.kind === 'context.compacted') return record.isShown === true;
  if (record.kind === 'toolkit.refresh_required' || record.kind === 'toolkit.refreshed') return false;
  return !('isHidden' in record);
}
