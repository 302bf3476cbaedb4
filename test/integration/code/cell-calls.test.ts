import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { Kernel } from '../../../src/features/code/kernel/kernel.ts';
import type { CallReply, KernelCall } from '../../../src/features/code/kernel/kernel-calls.ts';
import type { OutputPart } from '../../../src/core/output-parts.ts';
import type { CellEnd, CellStop } from '../../../src/features/code/kernel/running-cell.ts';
import { codeModules, TOOLS_PACKAGE } from '../../../src/features/code/tools/code-modules.ts';
import { replaceFolders } from '../../../src/features/code/kernel/replace-folders.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { endOf, openSandbox, runAnswering, wallOf, type Answer, type TestSandbox } from '../../support/kernels.ts';

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

const integer = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
const ADD = { server: 'lab', name: 'add', inputSchema: integer };
const ODD = { server: 'lab', name: 'odd-name.v2', inputSchema: integer };
const IMPORT = 'from mcptools.lab.add import run, run_async, Params\n';

let cells = 0;

function start(kernel: Kernel, code: string, timeoutMs = 30_000): Promise<CellStop> {
  return kernel.run({ id: `cell-${cells++}`, code }, { timeoutMs, onOutput: () => {} });
}

async function callsOf(running: Promise<CellStop>): Promise<KernelCall[]> {
  const stop = await running;
  if (stop.status === 'ended') throw new Error(`the cell has ended: ${JSON.stringify(stop.end)}`);
  return stop.calls;
}

function textOf({ parts }: CellEnd): string {
  return parts.map(({ text }) => text).join('');
}

/** The argument of a call of `add`. */
function argumentOf(call: KernelCall): number {
  return call.kind === 'tool' ? (JSON.parse(call.arguments) as { n: number }).n : Number.NaN;
}

function echo(call: KernelCall): Answer {
  return { status: 'succeeded', content: `${argumentOf(call)}` };
}

const DONE: CallReply = { number: 1, status: 'succeeded', content: 'done' };

describe.each(['sandbox', 'confined'] as const)('calls behind the wall %s', (name) => {
  let sandbox: TestSandbox;
  let kernel: Kernel;

  beforeAll(async () => {
    sandbox = await openSandbox(await wallOf(name));
    await replaceFolders(sandbox.folders.tools, [TOOLS_PACKAGE], codeModules([ADD, ODD]).files);
    kernel = await sandbox.startKernel();
  });

  afterAll(() => sandbox.remove());

  it('stop the cell, which runs on with the answer', async () => {
    const code = `${IMPORT}print("before")\nx = run(Params(n=7))\nprint(x)`;
    const { end, text, batches } = await runAnswering(kernel, code, () => ({ status: 'succeeded', content: 'seven' }));
    expect(batches).toEqual([[{ kind: 'tool', number: 1, server: 'lab', tool: 'add', arguments: '{"n": 7}' }]]);
    expect(text).toBe('before\nseven\n');
    expect(end).toMatchObject({ exit: 'ok', toolCalls: 1, commands: 0, defined: ['run', 'run_async', 'Params', 'x'] });
  });

  it('name the tool as its server does', async () => {
    const code = 'from mcptools.lab import odd_name_v2\nodd_name_v2.run(odd_name_v2.Params(n=1));';
    expect((await runAnswering(kernel, code, echo)).batches).toMatchObject([[{ tool: 'odd-name.v2' }]]);
  });

  it('of tasks are one batch, however many steps they take before', async () => {
    const code = [
      IMPORT,
      'import asyncio',
      'async def late(n):',
      '    for _ in range(n): await asyncio.sleep(0)',
      '    return await run_async(Params(n=n))',
      'print(await asyncio.gather(*(late(n) for n in range(5))), await run_async(Params(n=5)))',
    ].join('\n');
    const { text, batches } = await runAnswering(kernel, code, echo);
    expect(batches.map((batch) => batch.length)).toEqual([5, 1]);
    expect(text).toBe("['0', '1', '2', '3', '4'] 5\n");
  });

  it('of a loop that is never idle are made all the same', async () => {
    const code = [
      IMPORT,
      'import asyncio',
      'async def busy():',
      '    while True: await asyncio.sleep(0)',
      'task = asyncio.create_task(busy())',
      'print(await run_async(Params(n=1)))',
      'task.cancel();',
    ].join('\n');
    expect((await runAnswering(kernel, code, echo)).text).toBe('1\n');
  });

  it('of threads are each answered once', async () => {
    const code = [
      IMPORT,
      'from concurrent.futures import ThreadPoolExecutor',
      'with ThreadPoolExecutor(8) as pool: print(list(pool.map(lambda n: run(Params(n=n)), range(8))))',
    ].join('\n');
    const { text, batches } = await runAnswering(kernel, code, echo);
    expect(text).toBe("['0', '1', '2', '3', '4', '5', '6', '7']\n");
    expect(batches.flat().map(({ number }) => number)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(new Set(batches.flat().map(argumentOf)).size).toBe(8);
  });

  it('that are made while others are out are the next batch', async () => {
    const code = [
      IMPORT,
      'import threading',
      'first = threading.Thread(target=run, args=[Params(n=1)])',
      'first.start()',
      'while not get_ipython()._commands._gateway._sent: pass',
      'print(run(Params(n=2)))',
    ].join('\n');
    const { text, batches } = await runAnswering(kernel, code, echo);
    expect(batches.map((batch) => batch.map(argumentOf))).toEqual([[1], [2]]);
    expect(text).toBe('2\n');
  });

  it('from a leftover thread or task fail, also while a later cell runs', async () => {
    const code = [
      IMPORT,
      'import asyncio, threading',
      'from mcptools import ToolRunnerError',
      'go, failures = threading.Event(), []',
      'def late():',
      '    go.wait()',
      '    try: run(Params(n=1))',
      '    except ToolRunnerError as error: failures.append(str(error))',
      'async def late_task():',
      '    while not go.is_set(): await asyncio.sleep(0)',
      '    try: await run_async(Params(n=1))',
      '    except ToolRunnerError as error: failures.append(str(error))',
      'thread = threading.Thread(target=late)',
      'thread.start()',
      'task = asyncio.get_running_loop().create_task(late_task())',
      'await asyncio.sleep(0)',
    ].join('\n');
    await endOf(start(kernel, code));
    expect(textOf(await endOf(start(kernel, 'go.set(); thread.join(); await task; failures')))).toBe(
      "['no cell is running', 'no cell is running']\n",
    );
    expect((await runAnswering(kernel, `${IMPORT}run(Params(n=3))`, echo)).text).toBe("'3'\n");
  });

  it('from a forked process fail', async () => {
    const code = [
      IMPORT,
      'import os',
      'if (child := os.fork()) == 0:',
      '    try: run(Params(n=1))',
      '    except BaseException as error: print(repr(error))',
      '    os._exit(0)',
      'os.waitpid(child, 0)',
      'print(run(Params(n=2)))',
    ].join('\n');
    const { text, batches } = await runAnswering(kernel, code, echo);
    expect(batches).toHaveLength(1);
    expect(text.split('\n').sort()).toEqual([
      '',
      '2',
      "ToolRunnerError('a forked process cannot call tools or commands')",
    ]);
  });
});

describe('a call', () => {
  let sandbox: TestSandbox;
  let kernel: Kernel;

  beforeAll(async () => {
    sandbox = await openSandbox(await wallOf('sandbox'));
    await replaceFolders(sandbox.folders.tools, [TOOLS_PACKAGE], codeModules([ADD]).files);
    kernel = await sandbox.startKernel();
  });

  afterAll(() => sandbox.remove());

  it.each([
    ['failed', 'ToolRunnerError', 'error'],
    ['denied', 'ApprovalRejectedError', 'denied'],
    ['expired', 'ApprovalTimeoutError', 'error'],
    ['unknown_outcome', 'UnknownOutcomeError', 'error'],
  ] as const)('that is %s raises %s, which ends the cell as %s', async (status, error, exit) => {
    const { end, text } = await runAnswering(kernel, `${IMPORT}run(Params(n=1))`, () => ({
      status,
      message: 'lab/add: no',
    }));
    expect(end).toMatchObject({ exit, error: { name: error, message: 'lab/add: no' } });
    expect(text).toContain(`${error}: lab/add: no`);
    expect(text).not.toMatch(/everturn_kernel|add\.py/);
  });

  it('that is denied may be caught', async () => {
    const code = `import mcptools\n${IMPORT}try: run(Params(n=1))\nexcept mcptools.ToolRunnerError as error: print(error)`;
    const { end, text } = await runAnswering(kernel, code, () => ({ status: 'denied', message: 'no' }));
    expect(end.exit).toBe('ok');
    expect(text).toBe('no\n');
  });

  it('is denied by its own class, not by one of the same name', async () => {
    const code = 'class ApprovalRejectedError(Exception): pass\nraise ApprovalRejectedError("mine")';
    expect(await endOf(start(kernel, code))).toMatchObject({ exit: 'error', error: { name: 'ApprovalRejectedError' } });
  });

  it('with wrong arguments is not made', async () => {
    const end = await endOf(start(kernel, `${IMPORT}run(Params(n="x"))`));
    expect(end).toMatchObject({ exit: 'error', error: { name: 'ValidationError' }, toolCalls: 0 });
  });

  it('beyond 1,000 of a cell fails, and 32 are one batch at most', async () => {
    const code = [
      IMPORT,
      'import asyncio',
      'results = await asyncio.gather(*(run_async(Params(n=n)) for n in range(1001)), return_exceptions=True)',
      'print(results[999], repr(results[1000]))',
      'try: run(Params(n=1))',
      'except Exception as error: print(error)',
    ].join('\n');
    const { end, text, batches } = await runAnswering(kernel, code, echo);
    expect(batches.map((batch) => batch.length)).toEqual([...Array.from({ length: 31 }, () => 32), 8]);
    const message = 'a cell may make 1,000 calls of tools and commands';
    expect(text).toBe(`999 ToolRunnerError('${message}')\n${message}\n`);
    expect(end.toolCalls).toBe(1000);
    expect((await runAnswering(kernel, 'run(Params(n=5))', echo)).text).toBe("'5'\n");
  });

  it('has arguments of at most 1 MiB, and a batch of 8 MiB', async () => {
    const large = { server: 'lab', name: 'add', inputSchema: {} };
    const modules = codeModules([large]);
    await replaceFolders(sandbox.folders.tools, [TOOLS_PACKAGE], modules.files);
    const code = [
      IMPORT,
      'import asyncio',
      'print(await asyncio.gather(*(run_async(Params(x="\\u20ac" * 340_000)) for _ in range(10))))',
      'run(Params(x="\\u20ac" * 350_000))',
    ].join('\n');
    const { end, batches } = await runAnswering(kernel, code, () => ({ status: 'succeeded', content: '' }), {
      modules: modules.hash,
    });
    expect(batches.map((batch) => batch.length)).toEqual([4, 4, 2]);
    expect(end.error).toEqual({
      name: 'ToolRunnerError',
      message: expect.stringContaining('1,048,576 bytes') as string,
    });
  });
});

describe('modules that have changed', () => {
  it('are loaded again by the next cell', async () => {
    const sandbox = await openSandbox(await wallOf('sandbox'));
    const kernel = await sandbox.startKernel();
    const code = `import mcptools.lab.add as add\nprint(list(add.Params.model_fields), add.run(add.Params(**{field: 1 for field in add.Params.model_fields})))`;
    const other = { ...ADD, inputSchema: { type: 'object', properties: { m: { type: 'integer' } } } };
    const printed = [];
    for (const tool of [ADD, other]) {
      const modules = codeModules([tool]);
      await replaceFolders(sandbox.folders.tools, [TOOLS_PACKAGE], modules.files);
      const answer = (): Answer => ({ status: 'succeeded', content: 'x' });
      for (let i = 0; i < 2; i++)
        printed.push((await runAnswering(kernel, code, answer, { modules: modules.hash })).text);
    }
    expect(printed).toEqual(["['n'] x\n", "['n'] x\n", "['m'] x\n", "['m'] x\n"]);
    await sandbox.remove();
  });
});

describe('a cell that waits', () => {
  let sandbox: TestSandbox;

  beforeAll(async () => {
    sandbox = await openSandbox(await wallOf('sandbox'));
    await replaceFolders(sandbox.folders.tools, [TOOLS_PACKAGE], codeModules([ADD]).files);
  });

  afterAll(() => sandbox.remove());

  const code = `${IMPORT}kept = 1\nprint(run(Params(n=1)))`;

  it('does not use up its time', async () => {
    const kernel = await sandbox.startKernel();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    await callsOf(start(kernel, code));
    vi.advanceTimersByTime(7 * 24 * 3_600_000);
    const end = await endOf(kernel.resume([DONE], { spentMs: 100 }));
    vi.useRealTimers();
    expect(textOf(end)).toBe('done\n');
  });

  it('is interrupted at once if the time of its calls exceeds the limit, and keeps its variables', async () => {
    const kernel = await sandbox.startKernel();
    await callsOf(start(kernel, code));
    const end = await endOf(kernel.resume([DONE], { spentMs: 30_000 }));
    expect(end).toMatchObject({
      exit: 'timeout',
      error: { name: 'KeyboardInterrupt' },
      notices: ['time limit of 30 s reached'],
    });
    expect(textOf(await endOf(start(kernel, 'kept')))).toBe('1\n');
  });

  it('has the rest of its time afterwards', async () => {
    const kernel = await sandbox.startKernel();
    await callsOf(start(kernel, `${code}\nwhile True: pass`));
    const end = await endOf(kernel.resume([DONE], { spentMs: 27_000 }));
    expect(end).toMatchObject({ exit: 'timeout' });
    expect(textOf(end)).toContain('done\n');
  });

  it('collects the output of its threads', async () => {
    const kernel = await sandbox.startKernel();
    const seen = Promise.withResolvers<void>();
    const printing = `${IMPORT}import threading\nmain = threading.Thread(target=lambda: print(run(Params(n=1))))\nmain.start()\nwhile not get_ipython()._commands._gateway._sent: pass\nprint("still")\nmain.join()`;
    const running = kernel.run(
      { id: 'printing', code: printing },
      { timeoutMs: 30_000, onOutput: ({ text }) => text.includes('still') && seen.resolve() },
    );
    await callsOf(running);
    await seen.promise;
    expect(textOf(await endOf(kernel.resume([DONE], { spentMs: 0 })))).toBe('still\ndone\n');
  });

  it('gets an interrupt', async () => {
    const kernel = await sandbox.startKernel();
    await callsOf(start(kernel, code));
    kernel.interrupt();
    const end = await endOf(kernel.resume([DONE], { spentMs: 0 }));
    expect(end).toMatchObject({ exit: 'interrupted', error: { name: 'KeyboardInterrupt' } });
    expect(textOf(await endOf(start(kernel, 'kept')))).toBe('1\n');
  });

  it('may be abandoned, with its threads', async () => {
    const kernel = await sandbox.startKernel();
    const threads = `${IMPORT}from concurrent.futures import ThreadPoolExecutor\nkept = 1\nwith ThreadPoolExecutor(2) as pool: list(pool.map(lambda n: run(Params(n=n)), range(2)))`;
    await callsOf(start(kernel, threads));
    expect(await kernel.abandon()).toMatchObject({ exit: 'interrupted' });
    expect(textOf(await endOf(start(kernel, 'kept')))).toBe('1\n');
    await expect(kernel.abandon()).rejects.toThrow('no cell waits');
  });

  it('gets no further calls once it is interrupted', async () => {
    const kernel = await sandbox.startKernel();
    const again = `${IMPORT}try: run(Params(n=1))\nexcept KeyboardInterrupt:\n    try: run(Params(n=2))\n    except Exception as error: print(error)`;
    await callsOf(start(kernel, again));
    const end = await kernel.abandon();
    expect(end).toMatchObject({ exit: 'interrupted', toolCalls: 2 });
    expect(textOf(end)).toBe('the cell was interrupted\n');
  });

  it('ends with its kernel', async () => {
    const kernel = await sandbox.startKernel();
    const ends = [
      'import os, threading, time',
      'def end():',
      '    while not os.path.exists("end"): time.sleep(0.01)',
      '    os._exit(3)',
      'threading.Thread(target=end, daemon=True).start()',
    ].join('\n');
    await callsOf(start(kernel, `${ends}\n${IMPORT}run(Params(n=1))`));
    await writeFile(path.join(sandbox.folders.workspace, 'end'), '');
    expect(await kernel.ended).toMatchObject({ reason: 'died' });
    expect(await endOf(kernel.resume([DONE], { spentMs: 0 }))).toMatchObject({
      exit: 'died',
      kernelEnd: { reason: 'died' },
    });
  });

  it('ends after its answers, if a thread has asked, and its time with it', async () => {
    const kernel = await sandbox.startKernel();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const asking = [
      IMPORT,
      'import os, threading',
      'got = []',
      'thread = threading.Thread(target=lambda: got.append(run(Params(n=1))))',
      'thread.start()',
      'while not get_ipython()._commands._gateway._sent: pass',
      'os.chdir("/tmp")',
    ].join('\n');
    const hasEnded = Promise.withResolvers<void>();
    const onOutput = ({ channel }: OutputPart) => channel === 'notice' && hasEnded.resolve();
    await callsOf(kernel.run({ id: 'asking', code: asking }, { timeoutMs: 30_000, onOutput }));
    await hasEnded.promise;
    // The notice is the last output; then the end is known.
    await setImmediate();
    expect(await endOf(kernel.resume([DONE], { spentMs: 0 }))).toMatchObject({ exit: 'ok' });
    await callsOf(start(kernel, `thread.join(); run(Params(n=1)), got`));
    vi.advanceTimersByTime(60_000);
    const next = await endOf(kernel.resume([DONE], { spentMs: 0 }));
    vi.useRealTimers();
    expect(textOf(next)).toBe("('done', ['done'])\n");
  });

  it('is answered as a whole', async () => {
    const kernel = await sandbox.startKernel();
    await callsOf(start(kernel, code));
    await expect(kernel.resume([], { spentMs: 0 })).rejects.toThrow('answered together');
    await expect(start(kernel, '1')).rejects.toThrow('is running');
  });
});
