import { chown, mkdir } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { Seats } from '../../../src/features/code/host/seats.ts';
import { ThreadKernel, type Cell, type RanCell } from '../../../src/features/code/host/thread-kernel.ts';
import type { Kernel } from '../../../src/features/code/kernel/kernel.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { openSandbox, wallOf, type TestSandbox } from '../../support/kernels.ts';
import { storedVariables, type SnapshotRow, type StoredVariablesOptions } from '../../support/stored-variables.ts';

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

const RESTARTS = 120_000;

describe.each(['sandbox', 'confined'] as const)('behind the wall %s', (wall) => {
  let sandbox: TestSandbox;

  beforeAll(async () => {
    sandbox = await openSandbox(await wallOf(wall));
  });
  afterAll(() => sandbox.remove());

  const threadKernel = (options: { idleMs?: number; row?: SnapshotRow } = {}) => kernelIn(sandbox, options);

  test(
    'values, functions, classes, their objects and modules are there after a crash, and the cell runs',
    async () => {
      const { kernel, started } = threadKernel();
      await run(
        kernel,
        'class Point:\n  def __setstate__(self, state): self.loaded = json.dumps(state)\n' +
          'point = Point()\npoint.x = 1\nimport json, numpy as np\nfactor = 2\ndef scaled(n): return n * factor\nmatrix = np.ones((3, 3))\n_private = "p"\nnested = lambda: scaled(4)',
      );
      await started[0]?.stop('a crash');
      await expect.poll(() => kernel.state?.status).toBe('stopped');
      const code =
        'factor = 3\n(json.dumps([scaled(2), nested()]), isinstance(point, Point), point.loaded, matrix.sum(), _private)';
      const ran = await run(kernel, code, 1);
      expect(textOf(ran)).toBe(`('[6, 12]', True, '{"x": 1}', np.float64(9.0), 'p')\n`);
      expect(ran).toMatchObject({
        generation: 2,
        begun: { reason: 'died', lost: [], lostCount: 0, restored: { count: 9 } },
        end: { exit: 'ok' },
      });
      expect(started).toHaveLength(2);
    },
    RESTARTS,
  );

  test(
    'a lock, a generator and an open file are lost and named, and the cell after an idle time does not run',
    async () => {
      const { kernel } = threadKernel({ idleMs: 500 });
      await run(
        kernel,
        'import threading\nlock = threading.Lock()\nsteps = (n for n in [1])\nopen("f", "w").write("text"); opened = open("f")\nkept = [lock and 1]',
      );
      await expect.poll(() => kernel.state?.status).toBe('stopped');
      const stale = await run(kernel, 'open("ran", "w")', 1);
      const lost = { reason: 'idle', lost: ['lock', 'steps', 'opened'], lostCount: 3 };
      expect(stale).toMatchObject({
        begun: lost,
        end: { exit: 'stale', ...lost, restored: { names: ['threading', 'kept'] } },
      });
      // They are not lost a second time.
      await expect.poll(() => kernel.state?.status).toBe('stopped');
      const next = await run(kernel, 'import os; (kept, os.path.exists("ran"), "lock" in globals())', 2);
      expect(textOf(next)).toBe('([1], False, False)\n');
      expect(next).toMatchObject({ generation: 3, begun: { lost: [] } });
    },
    RESTARTS,
  );

  test(
    'another host begins with the variables, and a cell of another branch with none',
    async () => {
      const { row, kernel } = threadKernel();
      await run(kernel, 'x = [1, 2]');
      await kernel.stop('host_lost');
      const second = threadKernel({ row });
      const ran = await run(second.kernel, 'x.append(3); x', 1);
      expect(textOf(ran)).toBe('[1, 2, 3]\n');
      expect(ran).toMatchObject({ generation: 2, begun: { previousGeneration: 1, reason: 'host_lost' } });
      const third = threadKernel({ row });
      const known = { generation: 1, isLost: false };
      const forked = await third.kernel.run(cell('"x" in globals()', { known, isOnBranch: false }));
      expect(forked).toMatchObject({ begun: { reason: 'fork' }, end: { exit: 'stale', reason: 'fork' } });
      expect(row).toEqual({ snapshot: undefined, held: [] });
    },
    RESTARTS,
  );

  test(
    'a reset empties the kernel, whose variables are not stored any more',
    async () => {
      const { kernel, row } = threadKernel();
      await run(kernel, 'x = 1');
      expect(row.snapshot).toMatchObject({ kept: ['x'] });
      expect(await kernel.reset({ generation: 1, isLost: false })).toBe(2);
      expect(row).toEqual({ snapshot: undefined, held: [] });
      expect(textOf(await run(kernel, '"x" in globals()', 2))).toBe('False\n');
    },
    RESTARTS,
  );

  test(
    'a cell that fails stores nothing, so that the next one after a crash does not run, and is told why',
    async () => {
      const { kernel, started } = threadKernel();
      await run(kernel, 'x = 1');
      await run(kernel, 'x = 2; 1 / 0', 1);
      await started[0]?.stop('a crash');
      await expect.poll(() => kernel.state?.status).toBe('stopped');
      const stale = await run(kernel, 'x', 1);
      const restored = { names: ['x'], count: 1 };
      expect(stale).toMatchObject({ generation: 2, end: { exit: 'stale', lost: [], lostCount: 0, restored } });
      expect(textOf(await run(kernel, 'x', 2))).toBe('1\n');
      await run(kernel, 'y = 3; 1 / 0', 2);
      await kernel.stop('evicted');
      expect(await run(kernel, '1', 2)).toMatchObject({ end: { exit: 'stale', lost: ['y'], lostCount: 1, restored } });
    },
    RESTARTS,
  );

  test(
    'a variable of 300 MiB is lost and named, others are kept, and the kernel is not filled by it',
    async () => {
      const { kernel, row } = threadKernel();
      const ran = await run(kernel, 'small = 1\nlarge = bytes(300 * 1024 ** 2)\nother = "o"');
      expect(ran.end).toMatchObject({ exit: 'ok', cell: { notices: [] } });
      expect(row.snapshot).toMatchObject({ kept: ['small', 'other'], others: ['large'], otherCount: 1 });
      expect(row.snapshot?.list.bytes).toBeLessThan(1000);
    },
    RESTARTS,
  );

  test(
    'only what has changed is stored anew, and the blobs of what was replaced are given up',
    async () => {
      const { kernel, row } = threadKernel();
      await run(kernel, 'large = bytes(range(256)) * 40_000\nsmall = 1');
      const before = new Set(row.held);
      await run(kernel, 'small = 2', 1);
      // The three pieces of the large one are the same; its file was neither written nor read again.
      expect(row.held.filter((blob) => before.has(blob))).toHaveLength(3);
      expect(row.held).toHaveLength(before.size);
    },
    RESTARTS,
  );

  test(
    'code in values that ends the kernel: the result says so, and the next one has what was stored before',
    async () => {
      const { kernel } = threadKernel();
      await run(kernel, 'x = 1');
      const killing =
        'class Killing:\n  def __reduce__(self):\n    import os; os.kill(os.getpid(), 9)\nkilling = Killing()';
      const ran = await run(kernel, killing, 1);
      expect(ran).toMatchObject({ generation: 2, end: { exit: 'ok', cell: { kernelEnd: { reason: 'died' } } } });
      expect(ran.end).toMatchObject({ stored: { others: ['Killing', 'killing'] } });
      const next = await run(kernel, '(x, "killing" in globals())', 2);
      expect(textOf(next)).toBe('(1, False)\n');
    },
    RESTARTS,
  );

  test(
    'code in values that does not survive its restoring loses all variables, and the kernel starts',
    async () => {
      const { kernel, started } = threadKernel();
      await run(kernel, 'import os\nclass Bad:\n  def __reduce__(self): return os._exit, (1,)\nbad = Bad()\nx = 1');
      await started[0]?.stop('a crash');
      await expect.poll(() => kernel.state?.status).toBe('stopped');
      const stale = await run(kernel, '"ran"', 1);
      expect(stale).toMatchObject({ end: { exit: 'stale', lost: ['os', 'Bad', 'bad', 'x'], restored: { count: 0 } } });
      expect(textOf(await run(kernel, '"x" in globals()', 2))).toBe('False\n');
    },
    RESTARTS,
  );

  test(
    'what code in values writes is in the next result, and it makes no calls',
    async () => {
      const { kernel } = threadKernel();
      const code =
        'import os\nclass Noisy:\n  def __getstate__(self):\n    print("pickled"); os.write(1, b"raw")\n' +
        '    get_ipython().system("true")\n    return {}\nnoisy = Noisy()';
      const ran = await run(kernel, code);
      expect(ran.end).toMatchObject({ exit: 'ok' });
      const next = await run(kernel, 'print("next")', 1);
      expect(textOf(next)).toMatch(/raw[^]*next[^]*pickled/);
    },
    RESTARTS,
  );
});

describe('behind one wall', () => {
  let sandbox: TestSandbox;

  beforeAll(async () => {
    sandbox = await openSandbox(await wallOf('sandbox'));
  });
  afterAll(() => sandbox.remove());

  /** A kernel that has run this code, and has then crashed. */
  async function crashed(code: string) {
    const { kernel, started, row } = kernelIn(sandbox);
    await run(kernel, code);
    await started[0]?.stop('a crash');
    await expect.poll(() => kernel.state?.status).toBe('stopped');
    return { kernel, row };
  }

  test(
    'code in values that never ends costs the limit: what is stored by then is kept, and it is the last the next time',
    async () => {
      const { kernel, row } = kernelIn(sandbox);
      const code =
        'class Endless:\n  def __getstate__(self):\n    while True: pass\nfirst = 1\nendless = Endless()\nlast = 2';
      const ran = await run(kernel, code);
      expect(ran.end).toMatchObject({
        exit: 'ok',
        cell: { notices: [expect.stringContaining('within 8 s, and are lost with the kernel: endless, last')] },
      });
      expect(row.snapshot).toMatchObject({ kept: ['Endless', 'first'], others: ['endless', 'last'] });
      await run(kernel, 'print("next")', 1);
      expect(row.snapshot).toMatchObject({ kept: ['Endless', 'first', 'last'], others: ['endless'] });
    },
    RESTARTS,
  );

  test(
    'code in values that ignores its interrupt ends the kernel, and the result says so',
    async () => {
      const { kernel } = kernelIn(sandbox);
      const code =
        'import time\nclass Deaf:\n  def __getstate__(self):\n    while True:\n      try: time.sleep(60)\n' +
        '      except KeyboardInterrupt: pass\ndeaf = Deaf()';
      const ran = await run(kernel, code);
      expect(ran).toMatchObject({
        generation: 2,
        end: { exit: 'ok', cell: { kernelEnd: { reason: 'unresponsive' } } },
      });
      expect(await run(kernel, '1', 2)).toMatchObject({ end: { exit: 'ok' } });
    },
    RESTARTS,
  );

  test(
    'code in values that never ends while it is restored is lost, and what is restored by then is kept',
    async () => {
      const code =
        'first = 1\nclass Endless:\n  def __setstate__(self, state):\n    while True: pass\nendless = Endless(); endless.x = 1';
      const { kernel } = await crashed(code);
      const stale = await run(kernel, '1', 1);
      const restored = { names: ['first', 'Endless'], count: 2 };
      expect(stale).toMatchObject({ end: { exit: 'stale', lost: ['endless'], lostCount: 1, restored } });
    },
    RESTARTS,
  );

  test(
    'a value that becomes too large while it is restored ends the kernel, and the next one starts with nothing',
    async () => {
      const code = 'class Bomb:\n  def __reduce__(self): return bytearray, (8 * 1024 ** 3,)\nbomb = Bomb(); x = 1';
      const filling = code.replace(
        'return bytearray',
        'return (lambda n: [bytearray(b"x") * 1024 ** 2 for _ in range(n)])',
      );
      const { kernel } = await crashed(filling);
      const stale = await run(kernel, '1', 1);
      expect(stale).toMatchObject({ end: { exit: 'stale', lost: ['Bomb', 'bomb', 'x'], restored: { count: 0 } } });
    },
    RESTARTS,
  );

  test(
    'names of variables that are hidden values are not shown',
    async () => {
      const variables = path.join(sandbox.root, 'own-variables');
      await mkdir(variables);
      if (sandbox.wall.hasOwnUser) await chown(variables, sandbox.uid, sandbox.uid);
      const hidden = { values: ['secret'], mask: (text: string) => text.replaceAll('secret', '[TOKEN]') };
      const kernel = await sandbox.startKernel({ variables, hidden });
      const run = { id: 'names', code: 'import threading\nsecret_1 = 1\nsecret_2 = threading.Lock()' };
      await kernel.run(run, { timeoutMs: 30_000, onOutput: () => undefined });
      const { variables: outcome } = await kernel.keepVariables('save', { timeoutMs: 30_000 });
      const kept = ['threading', '[TOKEN]_1'];
      expect(outcome).toEqual({ kept, keptCount: 2, lost: ['[TOKEN]_2'], lostCount: 1 });
    },
    RESTARTS,
  );

  test(
    'variables beyond the first 1,000 are lost, and 200 are named',
    async () => {
      const { kernel, row } = await crashed('for i in range(1_100): globals()[f"v{i}"] = i');
      expect(row.snapshot).toMatchObject({ keptCount: 1000, otherCount: 101 });
      expect([row.snapshot?.kept.length, row.snapshot?.others.length]).toEqual([200, 101]);
      const stale = await run(kernel, '1', 1);
      expect(stale).toMatchObject({ end: { exit: 'stale', lostCount: 101, restored: { count: 1000 } } });
      expect(textOf(await run(kernel, '(v998, "v1099" in globals())', 2))).toBe('(998, False)\n');
    },
    RESTARTS,
  );

  test.each([
    ['answers at last', undefined, { end: { exit: 'ok', cell: { parts: [{ text: '2\n' }] } } }],
    ['fails at last', new Error('full'), { end: { exit: 'stale', restored: { names: ['x'] }, lost: ['y'] } }],
  ])(
    'a catalog that %s delays a result by 10 s, and the next kernel has what it has stored',
    async (_how, error, expected) => {
      let answers = Promise.resolve();
      const { kernel, started } = kernelIn(sandbox, { answers: () => answers });
      await run(kernel, 'x = 1');
      const late = Promise.withResolvers<void>();
      answers = late.promise;
      const ran = await run(kernel, 'x = 2; y = 3', 1);
      const notices = ['the variables are not stored: the catalog is too slow'];
      expect(ran.end).toMatchObject({ exit: 'ok', cell: { notices } });
      answers = Promise.resolve();
      if (error) late.reject(error);
      else late.resolve();
      await started[0]?.stop('a crash');
      await expect.poll(() => kernel.state?.status).toBe('stopped');
      expect(await run(kernel, 'x', 1)).toMatchObject(expected);
    },
    RESTARTS,
  );

  test(
    'an agent that does not want its variables stored any more gives up those that are',
    async () => {
      const { row } = await crashed('x = 1');
      const { kernel } = kernelIn(sandbox, { row, isOn: false });
      const stale = await run(kernel, 'x', 1);
      expect(stale).toMatchObject({ end: { exit: 'stale', reason: 'host_lost' } });
      expect(row).toEqual({ snapshot: undefined, held: [] });
    },
    RESTARTS,
  );
});

/** A kernel of a thread whose variables are stored. `row`: what another host has left. */
function kernelIn(
  sandbox: TestSandbox,
  { idleMs = 600_000, row = emptyRow(), ...more }: { idleMs?: number } & StoredVariablesOptions = {},
) {
  const started: Kernel[] = [];
  const seats = new Seats({ capacity: 1, perSubject: () => 1 });
  const start = async (variables?: string): Promise<Kernel> => {
    const kernel = await sandbox.startKernel({ variables, limits: { memoryBytes: 1024 ** 3 } });
    started.push(kernel);
    return kernel;
  };
  const owner = { subject: 'ann', isSubAgent: false };
  const variables = storedVariables(sandbox, { row, ...more });
  const kernel = new ThreadKernel({ start, variables, seats, ...owner, idleMs, suspendMs: 600_000 });
  onTestFinished(() => kernel.stop('host_lost'));
  return { kernel, started, row };
}

function emptyRow(): SnapshotRow {
  return { snapshot: undefined, held: [] };
}

/** @param generation the last one in the conversation; 0: none */
async function run(kernel: ThreadKernel, code: string, generation = 0): Promise<RanCell> {
  const ran = await kernel.run(cell(code, generation > 0 ? { known: { generation, isLost: false } } : {}));
  if ('calls' in ran) throw new Error('the cell has asked for calls');
  return ran;
}

function cell(code: string, more: Partial<Cell> = {}): Cell {
  const { signal } = new AbortController();
  const own = { id: code, turnId: 'turn_1', code, timeoutMs: 60_000, modules: '', known: undefined, isOnBranch: true };
  return { ...own, signal, onOutput: () => undefined, ...more };
}

function textOf({ end }: RanCell): string {
  return 'cell' in end ? end.cell.parts.map(({ text }) => text).join('') : '';
}
