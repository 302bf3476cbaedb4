import { hashOf } from '../lib/hash.ts';
import type { ToolCall } from '../core/records/calls.ts';

/**
 * Identifies what a tool call does: its server, its tool and its arguments. A decision applies to this hash, and only a
 * call with the same hash is run.
 */
export function callHash({ info, arguments: args }: Pick<ToolCall, 'info' | 'arguments'>): string {
  return hashOf({ info, arguments: args });
}
