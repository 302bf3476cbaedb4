import { beforeEach, expect, test, vi } from 'vitest';
import type { SeenTurn } from '../src/core/session.ts';
import { TurnWatch } from './turn-watch.ts';
import { eventually } from '../test/support/eventually.ts';

/** The requests of the watch to Temporal, in their order. */
const asked: string[] = [];
/** Set by a test: how the turn behaves. */
const turn: {
  signal: () => Promise<void>;
  terminate: (given: { sparesTools: boolean }) => Promise<boolean>;
  inspect: () => Promise<SeenTurn | undefined>;
  /** Called while the watch waits. */
  wait: () => void;
} = {
  signal: () => Promise.resolve(),
  terminate: () => Promise.resolve(true),
  inspect: () => Promise.resolve(undefined),
  wait: () => undefined,
};

vi.mock('@temporalio/workflow', () => ({
  condition: (isTrue: () => boolean, timeout: string | number) => {
    asked.push(`wait ${timeout}`);
    turn.wait();
    return Promise.resolve(isTrue());
  },
  defineSignal: (name: string) => ({ name }),
  defineUpdate: (name: string) => ({ name }),
  getExternalWorkflowHandle: (workflowId: string) => ({
    signal: (_: unknown, reason: string) => {
      asked.push(`cancel ${workflowId}: ${reason}`);
      return turn.signal();
    },
  }),
  log: {
    warn: () => undefined,
    error: (message: string, { error }: { error: unknown }) => asked.push(`${message}: ${String(error)}`),
  },
  proxyActivities: () => ({
    inspectTurn: () => {
      asked.push('inspect');
      return turn.inspect();
    },
    terminateTurn: (given: { sparesTools: boolean }) => {
      asked.push(`terminate${given.sparesTools ? ', but for tools' : ''}`);
      return turn.terminate(given);
    },
  }),
  proxySinks: () => ({ archive: { turnEnded: (turnId: string) => asked.push(`archive ${turnId}`) } }),
}));

let running: string | undefined;
const told: unknown[] = [];
const seen: SeenTurn = { turnId: 'turn_1', previousTurnId: null, sequence: 1, pending: [], open: false };

function watch(): TurnWatch {
  return new TurnWatch({
    sessionId: 'ses_1',
    runs: (turnId) => running === turnId,
    ended: (waiting) => {
      running = undefined;
      told.push(waiting);
    },
    closed: (turnId) => told.push(`${turnId} closed`),
    neverBegan: (turnId) => Promise.resolve(void told.push(`${turnId} never began`)),
  });
}

async function settled(watching: TurnWatch): Promise<void> {
  await eventually(() => expect(watching.isStopping).toBe(false));
}

beforeEach(() => {
  running = 'turn_1';
  asked.length = 0;
  told.length = 0;
  turn.signal = () => Promise.resolve();
  turn.terminate = () => Promise.resolve(true);
  turn.inspect = () => Promise.resolve(seen);
  turn.wait = () => undefined;
});

test('a cancelled turn that does not end is terminated, at first only if it runs no tool that must not be aborted', async () => {
  turn.terminate = ({ sparesTools }) => Promise.resolve(!sparesTools);
  const watching = watch();
  watching.stop('turn_1', 'client-cancelled');
  watching.stop('turn_1', 'cancelled-for-next-turn');
  expect(watching.isStopping).toBe(true);
  await settled(watching);
  expect(asked).toEqual([
    'cancel turn/turn_1: client-cancelled',
    'wait 10 seconds',
    'terminate, but for tools',
    'wait 20 seconds',
    'terminate',
    'inspect',
    'archive turn_1',
  ]);
  expect(told).toEqual([seen]);
});

test('a cancelled turn that ends is not terminated; one that was terminated is not terminated again', async () => {
  turn.wait = () => (running = undefined);
  const ending = watch();
  ending.stop('turn_1', 'client-cancelled');
  await settled(ending);
  expect(asked).toEqual(['cancel turn/turn_1: client-cancelled', 'wait 10 seconds']);

  running = 'turn_1';
  turn.wait = () => undefined;
  const hanging = watch();
  hanging.stop('turn_1', 'client-cancelled');
  await settled(hanging);
  expect(asked.filter((one) => one.startsWith('terminate'))).toEqual(['terminate, but for tools']);
});

test('a turn that cannot be cancelled has closed: how, is found out at once', async () => {
  turn.signal = () => Promise.reject(new Error('not found'));
  const watching = watch();
  watching.stop('turn_1', 'client-cancelled');
  await settled(watching);
  expect(asked.slice(0, 3)).toEqual(['cancel turn/turn_1: client-cancelled', 'inspect', 'archive turn_1']);
});

test('a turn of the queue is cancelled and archived, also if it has closed', async () => {
  turn.signal = () => Promise.reject(new Error('not found'));
  const watching = watch();
  watching.stopQueued('turn_2', 'client-cancelled');
  expect(watching.isStopping).toBe(true);
  await settled(watching);
  expect(asked).toEqual(['cancel turn/turn_2: client-cancelled', 'archive turn_2']);
});

test('what was read of a turn counts only while that turn runs', async () => {
  await watch().reconcile('turn_0');
  expect(asked).toEqual([]);
  turn.inspect = () => Promise.resolve({ ...seen, open: true });
  await watch().reconcile('turn_1');
  expect(told).toEqual([]);
  turn.inspect = () => Promise.reject(new Error('unavailable'));
  await watch().reconcile('turn_1');
  expect(told).toEqual([]);
  turn.inspect = () => {
    running = 'turn_2';
    return Promise.resolve({ ...seen, queued: { number: 1 } });
  };
  await watch().reconcile('turn_1');
  expect(told).toEqual([]);
  expect(running).toBe('turn_2');
});

test('a turn that has ended in the queue never began; a missing one has ended, with nothing that waits', async () => {
  turn.inspect = () => Promise.resolve({ ...seen, queued: { number: 1 } });
  await watch().reconcile('turn_1');
  turn.inspect = () => Promise.resolve(undefined);
  await watch().reconcile('turn_1');
  expect(told).toEqual(['turn_1 never began', { pending: [] }]);
});

test('a child that ends is reported and archived once; one that fails is inspected', async () => {
  const watching = watch();
  const child = Promise.withResolvers<{ status: 'error'; message: string }>();
  watching.child('turn_1', child.promise);
  watching.running('turn_1');
  child.resolve({ status: 'error', message: 'x' });
  await eventually(() => expect(told).toEqual(['turn_1 closed', { pending: [] }]));
  expect(asked).toEqual(['archive turn_1']);

  running = 'turn_1';
  watching.child('turn_1', Promise.reject(new Error('terminated')));
  await eventually(() => expect(asked).toEqual(['archive turn_1', 'inspect', 'archive turn_1', 'wait 1000']));
});

test('a child that closes in the queue is archived, and does not end the running turn', async () => {
  const child = Promise.resolve({ status: 'cancelled', reason: 'client-cancelled' } as const);
  watch().child('turn_2', child);
  await eventually(() => expect(asked).toEqual(['archive turn_2']));
  expect(told).toEqual(['turn_2 closed']);
  expect(running).toBe('turn_1');
});

test('a turn that is no child is polled until it has ended, ever less often and at least once a minute', async () => {
  const ends = Array.from({ length: 9 }, (_, poll) => ({ ...seen, open: poll < 8 }));
  turn.inspect = () => Promise.resolve(ends.shift());
  watch().running('turn_1');
  await eventually(() => expect(told).toEqual([seen]));
  const waits = asked.filter((one) => one.startsWith('wait')).map((one) => Number(one.slice(5)) / 1000);
  expect(waits).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
});
