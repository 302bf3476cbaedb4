import type { CallSource, ToolRoute } from './records/calls.ts';

/** Set for a call of a server whose calls run in the order of their message, and for one that runs in a kernel. */
export interface CallOrder {
  /** The id of the server, or `KERNEL`. */
  server: string;
  /** Its tool changes nothing: it may run beside the read-only calls next to it. */
  isReadOnly?: true;
}

/** The `server` of calls that the kernel of a thread runs, one after the other. No server has this id. */
export const KERNEL = 'kernel';

/** The fields of a call that determine the order. */
interface OrderedCall {
  source: Pick<CallSource, 'index'> & { run?: { order?: CallOrder } };
}

/**
 * The calls in `open`, the calls of one message without a result, that may not begin yet: an earlier call has the same
 * server, and one of the two is not read-only.
 * @param ends whether a call that may begin gets its result before any other call begins; default: none does. With it,
 *   returns the calls that wait until one of the others has a result.
 */
export function heldCalls<C extends OrderedCall>(open: readonly C[], ends = (_call: C): boolean => false): Set<C> {
  const held = new Set<C>();
  /** By server, which calls may begin beside its earlier ones. */
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

/** The calls of a message, in order, that wait behind a call that asks, and so for as long as that one. */
export function heldByAsking<C extends { route: ToolRoute }>(calls: readonly C[]): Set<C> {
  const positioned = calls.map((call, index) => {
    const { route } = call;
    return { call, source: { index, ...(route.to === 'server' && { run: route }) } };
  });
  return new Set([...heldCalls(positioned, ({ call }) => !asks(call.route))].map(({ call }) => call));
}
