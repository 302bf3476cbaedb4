import { getEventListeners } from 'node:events';
import type { Connection } from '@temporalio/client';
import { defaultDataConverter } from '@temporalio/common';
import { expect, test } from 'vitest';
import { TurnHistory } from './history.ts';

test('a reader who follows for long leaves nothing on the signal that would end it', async () => {
  const pages = 20;
  let polls = 0;
  const signals = new Set<AbortSignal>();
  const connection = {
    withDeadline: <T>(_: number, work: () => T) => work(),
    withAbortSignal: <T>(signal: AbortSignal, work: () => T) => {
      // As the client does, which never takes its listener back.
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
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- as much of one as is used here
    connection: connection as unknown as Connection,
    namespace: 'n',
    converter,
  });
  const stop = new AbortController();
  for await (const _ of history.read('turn_1', undefined, stop.signal)) {
    expect(getEventListeners(stop.signal, 'abort')).toEqual([]);
  }
  expect([polls, signals.size]).toEqual([pages, pages]);
});
