import type { CallSource, ToolRoute } from './records/calls.ts';

/** Set for a call of a server whose calls run in the order of their message, and for one that runs in a kernel. */
export interface CallOrder {
  /** The id of the server, or `KERNEL`. */
  server: string;
  /** Its tool changes nothing: it may run beside the read-only calls next to it. */
  isReadOnly?: true;
}

/** What runs the code of a thread, one call after the other. The ids of servers differ from it. */
export const KERNEL = 'kernel';

/** A call of a message, as far as it determines the order. */
interface OrderedCall {
  source: Pick<CallSource, 'index'> & { run?: { order?: CallOrder } };
}

/**
 * Those of `open`, the calls of one message without a result, that may not begin yet: an earlier one has the same server,
 * and one of the two is not read-only.
 * @param ends whether a call that may begin gets its result before any other call begins; default: none does. With it,
 *   the calls are returned that are held until one of the others has a result.
 */
export function heldCalls<C extends OrderedCall>(open: readonly C[], ends = (_call: C): boolean => false): Set<C> {
  const held = new Set<C>();
  /** What the earlier calls of each server let begin. */
  const behind = new Map<string, 'reads' | 'nothing'>();
  const ordered = open.flatMap((call) => {
    const { index, run } = call.source;
    return run?.order ? [{ call, index, ...run.order }] : [];
  });
  for (const { call, server, isReadOnly } of ordered.toSorted((a, b) => a.index - b.index)) {
    const allows = behind.get(server);
    if (allows === 'nothing' || (allows === 'reads' && !isReadOnly)) held.add(call);
    else if (ends(call)) continue;
    behind.set(server, isReadOnly && allows !== 'nothing' ? 'reads' : 'nothing');
  }
  return held;
}

/** Whether a call waits for a human or a client as soon as its message has ended. */
export function asks(route: ToolRoute): boolean {
  return route.to === 'client' || (route.to === 'server' && route.approval);
}

/** Those of the calls of a message, in their order, that are held by one that asks, and so wait as long as that. */
export function heldByAsking<C extends { route: ToolRoute }>(calls: readonly C[]): Set<C> {
  const placed = calls.map((call, index) => {
    const { route } = call;
    return { call, source: { index, ...(route.to === 'server' && { run: route }) } };
  });
  return new Set([...heldCalls(placed, ({ call }) => !asks(call.route))].map(({ call }) => call));
}
