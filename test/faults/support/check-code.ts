import { expect } from 'vitest';
import type { SessionEvent } from '../../../src/api/sessions/wire/events.ts';
import { keyIn } from './called.ts';
import type { Log } from './check.ts';

type Response = Extract<SessionEvent, { type: 'tool.response' }>;

/** How a cell may end: its `exit`, and the outcomes that this may have. */
const ENDS: Record<string, string[]> = {
  ok: ['succeeded'],
  error: ['failed'],
  timeout: ['failed'],
  interrupted: ['failed', 'cancelled'],
  died: ['failed'],
  denied: ['failed'],
  lost: ['failed', 'unknown_outcome'],
  stale: ['failed'],
  not_started: ['failed', 'cancelled'],
};

/** A call that the turn has not begun, or that was not approved, has no `exit`. */
const NOT_BEGUN = ['cancelled', 'denied', 'expired'];

/** The work of code in a session: how its cells have ended, and in which generations of their kernels. */
export function checkCode(turns: Pick<Log, 'events'>[]): void {
  const events = turns.flatMap((one) => one.events);
  const cells = new Set(
    events.flatMap((event) =>
      event.type === 'model.message'
        ? event.tool_calls
            .filter(({ function: { name } }) => name === 'ipython')
            .map(({ id }) => `${event.thread_id} ${id}`)
        : [],
    ),
  );
  const results = events.filter((event) => event.type === 'tool.response').filter((one) => cells.has(keyIn(one)));
  for (const result of results) checkEnd(result);
  for (const [thread, its] of Map.groupBy(results, ({ thread_id: id }) => id)) {
    const generations = its.flatMap(({ execution }) => execution?.generation ?? []);
    expect(generations, `generations of the kernel of ${thread}`).toEqual(generations.toSorted((a, b) => a - b));
  }
  checkOrder(events, cells);
}

function checkEnd(result: Response): void {
  const { execution, outcome } = result;
  const what = `${keyIn(result)}: ${result.content}`;
  if (execution) expect(ENDS[execution.exit], `${execution.exit} of ${what}`).toContain(outcome);
  else expect(NOT_BEGUN, what).toContain(outcome);
}

/** A cell with a thread has its result directly after the end of that, and what the code has called has its own before. */
function checkOrder(events: SessionEvent[], cells: ReadonlySet<string>): void {
  const open = new Map<string, { parent: { thread_id: string; tool_call_id: string }; calls: Set<string> }>();
  for (const [i, event] of events.entries()) {
    if (event.type === 'thread.created' && cells.has(keyIn(event.parent))) {
      open.set(event.thread_id, { parent: event.parent, calls: new Set() });
    }
    if (event.type === 'model.message') {
      for (const { id } of event.tool_calls) open.get(event.thread_id)?.calls.add(id);
    }
    if (event.type === 'tool.response') open.get(event.thread_id)?.calls.delete(event.tool_call_id);
    const ended = event.type === 'thread.done' ? open.get(event.thread_id) : undefined;
    if (!ended) continue;
    expect([...ended.calls], `calls of ${keyIn(ended.parent)} without a result when its code ends`).toEqual([]);
    expect(events[i + 1], `what follows the code of ${keyIn(ended.parent)}`).toMatchObject({
      type: 'tool.response',
      ...ended.parent,
    });
  }
}
