import { z } from 'zod';
import type { LogRecord } from '../../../core/records/log.ts';

/** The query of the routes that return events. */
export const viewQuery = {
  view: z
    .enum(['default', 'full'], { error: 'must be default or full' })
    .default('default')
    .describe('`full`: with all events, for clients that accept types which older ones do not know'),
};

export type View = z.infer<typeof viewQuery.view>;

/**
 * Whether a reader gets the event of a record: a client that does not support its type would fail. Each kind is named,
 * so that a new one is not shown to all clients unless that was decided.
 */
export function isInView(record: LogRecord, view: View): boolean {
  if (view === 'full') return true;
  switch (record.kind) {
    case 'context.compacted':
      return record.isShown === true;
    case 'feature.event':
    case 'turn.paused':
    case 'turn.resumed':
      return record.isHidden !== true;
    case 'toolkit.refresh_required':
    case 'toolkit.refreshed':
      return false;
    case 'mcp.auth_required':
    case 'mcp.initialize':
    case 'model.message':
    case 'thread.created':
    case 'thread.done':
    case 'tool.approval_required':
    case 'tool.decided':
    case 'tool.response':
    case 'tool.response_required':
    case 'turn.created':
    case 'turn.done':
    case 'user.steered':
      return true;
  }
}
