import { hashOf } from '../lib/hash.ts';
import type { ToolCall } from '../core/records.ts';

/**
 * Stands for what a tool call does: its server, its tool and its arguments. A decision is bound to it, and only a call
 * with the same hash is run. The arguments are hashed as the blob store keeps them, which has no lone surrogates.
 */
export function callHash({ info, arguments: args }: Pick<ToolCall, 'info' | 'arguments'>): string {
  return hashOf({ info, arguments: args.toWellFormed() });
}
