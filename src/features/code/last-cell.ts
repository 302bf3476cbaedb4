import { KERNEL } from '../../core/call-order.ts';
import type { UnsequencedRecord } from '../../core/records/log.ts';
import type { FeatureEvent } from '../../core/records/sandbox.ts';
import { callKey } from '../../core/tool-records.ts';

/** The kernel of a thread that a conversation has seen. */
export interface KnownKernel {
  /** The generation in the last result of a cell, or the one before an end without a generation. */
  generation: number;
  /** The last cell is known to have lost its kernel: the next cell runs in any kernel. */
  isLost: boolean;
}

/**
 * The kernel that the next cell of a thread relies on, according to the log; undefined if the thread has run no cell. A
 * cell that did not run changes nothing.
 */
export function knownKernel(records: readonly UnsequencedRecord[], threadId: string): KnownKernel | undefined {
  const cells = new Set<string>();
  let known: KnownKernel | undefined;
  // A waiting cell has started its kernel, and has no result yet: if it is lost, its result contains no generation.
  let started = 0;
  for (const record of records) {
    if (record.kind === 'model.message' && record.threadId === threadId) {
      for (const { id, route } of record.toolCalls) {
        if (route.to === 'server' && route.order?.server === KERNEL) cells.add(callKey({ threadId, toolCallId: id }));
      }
    }
    if (record.kind === 'feature.event' && record.threadId === threadId) started = startedIn(record) ?? started;
    if (record.kind !== 'tool.response' || !cells.has(callKey(record))) continue;
    const { execution, outcome } = record;
    if (execution?.generation !== undefined) known = { generation: execution.generation, isLost: false };
    else if (execution?.exit === 'lost' || outcome === 'unknown_outcome') {
      known = { generation: Math.max(started, known?.generation ?? 0), isLost: true };
    }
  }
  return known;
}

/** The generation of the kernel in an event of its start. */
function startedIn({ type, data: { generation } }: Pick<FeatureEvent, 'type' | 'data'>): number | undefined {
  const isStart = type === 'kernel.started' || type === 'kernel.restarted';
  return isStart && typeof generation === 'number' ? generation : undefined;
}
