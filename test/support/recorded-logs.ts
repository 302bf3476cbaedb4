import type { Connection } from '@temporalio/client';
import { defaultDataConverter } from '@temporalio/common';
import type { HistoryEvent } from '../../src/core/history.ts';
import { TurnHistory } from '../../src/temporal/history.ts';

/** The events of a recorded history of a turn, as a reader of it decodes them. */
export async function eventsOf(history: object): Promise<HistoryEvent[]> {
  let pages = 0;
  /** A run that was reset is read once more, from the run that results: the history has nothing of that. */
  const page = () => ({ history: pages++ === 0 ? history : { events: [] }, nextPageToken: new Uint8Array() });
  const connection = {
    withDeadline: (_deadline: number, request: () => unknown) => request(),
    workflowService: { getWorkflowExecutionHistory: () => Promise.resolve(page()) },
  };
  const reader = new TurnHistory({
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the parts that are used here
    connection: connection as unknown as Connection,
    namespace: 'n',
    converter: { ...defaultDataConverter, payloadCodecs: [] },
  });
  const events: HistoryEvent[] = [];
  for await (const one of reader.read('turn_1')) events.push(...one.events);
  return events;
}
