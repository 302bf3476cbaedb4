import { getEventListeners } from 'node:events';
import type { Connection } from '@temporalio/client';
import { defaultDataConverter } from '@temporalio/common';
import { expect, test } from 'vitest';
import { TurnHistory } from './history.ts';

test('a reader that follows for long leaves no listeners on its signal', async () => {
  const pages = 20;
  let polls = 0;
  const signals = new Set<AbortSignal>();
  const connection = {
    withDeadline: <T>(_: number, work: () => T) => work(),
    withAbortSignal: <T>(signal: AbortSignal, work: () => T) => {
      // Like the client, which never removes its listener.
      signal.addEventListener('abort', () => undefined);
      signals.add(signal);
      return work();
    },
    workflowService: {
      getWorkflowExecutionHistory: () => {
        polls += 1;
        return Promise.resolve({
          history: { events: [] },
          nextPageToken: polls < pages ? new Uint8Array(1) : new Uint8Array(),
        });
      },
    },
  };
  const converter = { ...defaultDataConverter, payloadCodecs: [] };
  const history = new TurnHistory({
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the parts that are used here
    connection: connection as unknown as Connection,
    namespace: 'n',
    converter,
  });
  const stop = new AbortController();
  for await (const _ of history.read('turn_1', { follow: stop.signal })) {
    expect(getEventListeners(stop.signal, 'abort')).toEqual([]);
  }
  expect([polls, signals.size]).toEqual([pages, pages]);
});
