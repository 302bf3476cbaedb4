import { getEventListeners } from 'node:events';
import type { Connection } from '@temporalio/client';
import { defaultDataConverter, defaultPayloadConverter } from '@temporalio/common';
import { expect, test } from 'vitest';
import { TURN_RULES } from '../core/history.ts';
import { OLD_RULES } from '../core/temporal-names.ts';
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
  const history = reading(connection);
  const stop = new AbortController();
  for await (const _ of history.read('turn_1', { follow: stop.signal })) {
    expect(getEventListeners(stop.signal, 'abort')).toEqual([]);
  }
  expect([polls, signals.size]).toEqual([pages, pages]);
});

const payloadsOf = (value: unknown) => ({ payloads: [defaultPayloadConverter.toPayload(value)] });
const started = (start: object = {}) => ({
  workflowExecutionStartedEventAttributes: { input: payloadsOf({ rules: TURN_RULES, ...start }) },
});
const signaled = (type: string) => ({
  workflowExecutionSignaledEventAttributes: { signalName: 'command', input: payloadsOf({ type }) },
});
const terminated = (details?: unknown) => ({
  workflowExecutionTerminatedEventAttributes: details === undefined ? {} : { details: payloadsOf(details) },
});

/** The log that a reader of the run gets, of these runs with their events. */
async function read(runs: Record<string, object[]>, runId: string): Promise<unknown[]> {
  const history = reading({
    withDeadline: <T>(_: number, work: () => T) => work(),
    workflowService: {
      getWorkflowExecutionHistory: ({ execution }: { execution: { runId: string } }) => {
        const events = runs[execution.runId]?.map((event, index) => ({ eventId: index + 1, ...event }));
        return Promise.resolve({ history: { events }, nextPageToken: new Uint8Array() });
      },
    },
  });
  const read: unknown[] = [];
  for await (const { events } of history.read('turn_1', { runId })) {
    read.push(
      ...events.map((event) =>
        event.type === 'commanded' ? event.command.type : event.type === 'closed' ? event.close : event.type,
      ),
    );
  }
  return read;
}

function reading(connection: object): TurnHistory {
  return new TurnHistory({
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only the parts that are used here
    connection: connection as Connection,
    namespace: 'n',
    converter: { ...defaultDataConverter, payloadCodecs: [] },
  });
}

test('a run that results from a reset, and a run that follows it, are read as the run that was reset', async () => {
  const reset = { workflowTaskFailedEventAttributes: { baseRunId: 'first' } };
  const runs = {
    first: [started(), signaled('before'), signaled('after'), terminated()],
    reset: [started(), signaled('before'), reset, signaled('after'), signaled('more')],
    following: [started({ resetRunId: 'first' }), signaled('more')],
    notReset: [started(), signaled('more')],
  };
  const log = ['started', 'before', 'after', { how: 'terminated', reason: 'abandoned' }];
  expect(await read(runs, 'reset')).toEqual(log);
  expect(await read(runs, 'following')).toEqual(log);
  expect(await read(runs, 'notReset')).toEqual(['started', 'more']);
});

test('a turn that a start has ended because of its old rules has failed, and says why', async () => {
  const ended = await read({ first: [started(), terminated(OLD_RULES)] }, 'first');
  expect(ended[1]).toEqual({ how: 'failed', message: expect.stringContaining('--end-old-turns') });
  const cancelled = await read({ first: [started(), terminated('client-cancelled')] }, 'first');
  expect(cancelled[1]).toEqual({ how: 'terminated', reason: 'client-cancelled' });
});
