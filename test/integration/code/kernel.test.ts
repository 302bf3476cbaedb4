import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { KernelEnded, type Kernel } from '../../../src/features/code/kernel/kernel.ts';
import type { OutputPart } from '../../../src/core/output-parts.ts';
import type { CellEnd } from '../../../src/features/code/kernel/running-cell.ts';
import { eventually } from '../../support/eventually.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { endOf, openSandbox, wallOf, type TestSandbox } from '../../support/kernels.ts';

let sandbox: TestSandbox;

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  sandbox = await openSandbox(await wallOf('sandbox'));
});

afterAll(() => sandbox.remove());

interface CellOptions {
  timeoutMs?: number;
  onOutput?: (part: OutputPart) => void;
}

let cells = 0;

function run(
  kernel: Kernel,
  code: string,
  { timeoutMs = 30_000, onOutput = () => {} }: CellOptions = {},
): Promise<CellEnd> {
  return endOf(kernel.run({ id: `cell-${cells++}`, code }, { timeoutMs, onOutput }));
}

function textOf({ parts }: CellEnd): string {
  return parts.map(({ text }) => text).join('');
}

describe('a hidden value', () => {
  const hidden = { values: ['secret-value'], mask: (text: string) => text.replaceAll('secret-value', '[TOKEN]') };

  /** All that is shown of cells that run one after the other. @param between called after each cell */
  async function shown(
    outputBytes: number,
    codes: string[],
    between: (code: string) => Promise<void> = async () => {},
  ): Promise<string[]> {
    const kernel = await sandbox.startKernel({ hidden, limits: { outputBytes } });
    const all: string[] = [];
    for (const code of codes) {
      const live: OutputPart[] = [];
      const end = await run(kernel, code, { onOutput: (part) => live.push(part) });
      all.push(JSON.stringify([live, end]));
      await between(code);
    }
    await kernel.stop('the test has ended');
    return all;
  }

  it.each([
    ['by its kernel', 'print("x" * 1017 + "secret-value")'],
    ['by its host', 'import os\nos.write(1, b"x" * 1017 + b"secret-value")'],
    ['by its end', 'import os\nos.write(1, b"x" * 500 + b"secret-")\nos.kill(os.getpid(), 9)'],
  ])('is not shown in part where output is cut %s', async (_by, code) => {
    const [text] = await shown(1024, [code]);
    expect(text).toMatch(/x{500}/);
    expect(text).not.toContain('sec');
  });

  it('is not shown in part where names and messages are cut', async () => {
    const [name, message] = await shown(1024, [
      'globals()["n" * 249 + "secret-value"] = 1',
      'raise ValueError("m" * 4_090 + "secret-value")',
    ]);
    expect(name).toMatch(/n{249}"/);
    expect(message).toMatch(/m{4090}"/);
    expect([name, message].join('')).not.toContain('sec');
  });

  it('is not shown in part where output between cells is cut', async () => {
    const file = path.join(sandbox.folders.workspace, 'between');
    const later = (print: string) =>
      `import os, threading, time\ndef late():\n  while not os.path.exists("between"): time.sleep(0.01)\n  ${print}\n  os.remove("between")\n`;
    const [, ofThread, , ofChild] = await shown(
      1024 * 1024,
      [
        `${later('print("x" * 65_530 + "secret-value")')}threading.Thread(target=late).start()`,
        'print("next")',
        `${later('os.write(1, b"x" * 65_530 + b"secret-value")')}if os.fork() == 0:\n  late()\n  os._exit(0)`,
        'print("next")',
      ],
      // What such a cell has started writes once there is the file, and then removes it.
      async (code) => {
        if (!code.includes('late')) return;
        await writeFile(file, '');
        await eventually(() => expect(existsSync(file)).toBe(false));
      },
    );
    for (const text of [ofThread, ofChild]) {
      expect(text).toMatch(/x{65530}/);
      expect(text).not.toContain('sec');
    }
  });
});

describe('a cell', () => {
  let kernel: Kernel;

  beforeAll(async () => {
    kernel = await sandbox.startKernel();
  });

  it('sees the variables of earlier cells, and reports those that it has defined', async () => {
    const first = await run(kernel, 'x = 41\n_hidden = 1\nimport json');
    expect(first).toMatchObject({ exit: 'ok', defined: ['x', 'json'], names: ['x', 'json'], nameCount: 2 });
    expect(await run(kernel, 'x += 1; y = x; print(x)')).toMatchObject({
      parts: [{ channel: 'stdout', text: '42\n' }],
      defined: ['x', 'y'],
    });
  });

  it('displays the value of its last expression, after what it has printed', async () => {
    const { parts, outputBytes } = await run(kernel, 'import sys\nprint("a")\nprint("b", file=sys.stderr)\n"c" * 3');
    expect(parts).toEqual([
      { channel: 'stdout', text: 'a\n' },
      { channel: 'stderr', text: 'b\n' },
      { channel: 'display', text: "'ccc'\n" },
    ]);
    expect(outputBytes).toBe(10);
  });

  it('awaits at the top level', async () => {
    expect(textOf(await run(kernel, 'import asyncio\nawait asyncio.sleep(0.01)\nawait asyncio.sleep(0, "done")'))).toBe(
      "'done'\n",
    );
  });

  it('runs magics', async () => {
    expect(textOf(await run(kernel, '%pwd'))).toBe("'/workspace'\n");
  });

  it('reports an exception with its output, without frames of the kernel', async () => {
    const end = await run(kernel, 'print("before")\ndef divide(): return 1 / 0\ndivide()');
    expect(end).toMatchObject({ exit: 'error', error: { name: 'ZeroDivisionError', message: 'division by zero' } });
    expect(end.parts.map(({ channel }) => channel)).toEqual(['stdout', 'error']);
    expect(textOf(end)).toMatch(/^before\n[^]*in divide\(\)[^]*ZeroDivisionError: division by zero\n$/);
    expect(textOf(end)).not.toContain('everturn_kernel');
    expect(textOf(end)).not.toContain('\u001B');
  });

  it('reports a syntax error', async () => {
    expect(await run(kernel, 'x = = 1')).toMatchObject({ exit: 'error', error: { name: 'SyntaxError' } });
  });

  it('has no standard input', async () => {
    expect(await run(kernel, 'input("name? ")')).toMatchObject({
      exit: 'error',
      error: { name: 'StdinNotImplementedError' },
    });
  });

  it('cannot start programs', async () => {
    expect(await run(kernel, 'import subprocess; subprocess.run(["ls"])')).toMatchObject({
      exit: 'error',
      error: { name: 'PermissionError' },
    });
  });

  it('ends in the workspace', async () => {
    expect(await run(kernel, 'import os; os.chdir("/tmp")')).toMatchObject({ notices: ['cwd reset to /workspace'] });
    expect(textOf(await run(kernel, 'os.getcwd()'))).toBe("'/workspace'\n");
    const gone = 'os.mkdir("gone"); os.chdir("gone"); os.rmdir("/workspace/gone")';
    expect(await run(kernel, gone)).toMatchObject({ exit: 'ok', notices: ['cwd reset to /workspace'] });
  });

  it('shares the files of the sandbox, and imports from its workspace and tools', async () => {
    await mkdir(path.join(sandbox.folders.tools, 'saved'), { recursive: true });
    await writeFile(path.join(sandbox.folders.tools, 'saved', 'tool.py'), 'answer = 42');
    await writeFile(path.join(sandbox.folders.workspace, 'mine.py'), 'answer = 43');
    const code =
      'from saved.tool import answer as a\nfrom mine import answer as b\nopen("made", "w").write("made")\na, b';
    expect(textOf(await run(kernel, code))).toBe('(42, 43)\n');
    expect(await readFile(path.join(sandbox.folders.workspace, 'made'), 'utf8')).toBe('made');
  });

  it('shows figures, and other displays that are files', async () => {
    const figure = await run(
      kernel,
      'import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.figure()\nplt.plot([2, 1]);',
    );
    expect(figure.displays.map(({ mediaType }) => mediaType)).toEqual(['image/png', 'image/png']);
    expect(figure.displays[0]?.data.subarray(1, 4).toString()).toBe('PNG');
    const table = await run(kernel, 'import pandas\npandas.DataFrame({"a": [1]})');
    expect(table.displays.map(({ mediaType }) => mediaType)).toEqual(['text/html']);
    expect(textOf(table)).toBe('   a\n0  1\n');
  });

  it('shows at most 20 displays, none above 8 MiB', async () => {
    const code = 'from IPython.display import HTML, JSON, display\nfor n in range(25): display(JSON({"n": n}))';
    const many = await run(kernel, code);
    expect(many.displays).toHaveLength(20);
    expect(many.notices).toEqual(['5 displays are left out: a cell may show 20']);
    const large = await run(kernel, 'display(HTML("x" * (8 * 1024 * 1024 + 1)))');
    expect(large.displays).toEqual([]);
    expect(large.notices).toEqual([expect.stringContaining('is left out')]);
  });

  it('shows what C code and forked children write', async () => {
    const code = [
      'import os',
      'os.write(1, b"one\\n")',
      'if (child := os.fork()) == 0:',
      '    print("two")',
      'else:',
      '    os.waitpid(child, 0)',
    ].join('\n');
    const end = await run(kernel, code);
    expect(textOf(end)).toBe('one\ntwo\n');
    expect(textOf(await run(kernel, '"still one kernel"'))).toBe("'still one kernel'\n");
  });

  it('shows what threads of earlier cells have written, marked', async () => {
    const code = [
      'import threading',
      'go, done = threading.Event(), threading.Event()',
      'def late():',
      '    go.wait()',
      '    print("late")',
      '    done.set()',
      'threading.Thread(target=late).start()',
    ].join('\n');
    await run(kernel, code);
    expect(textOf(await run(kernel, 'go.set(); done.wait(); print("next")'))).toBe(
      'next\n[everturn] output of threads that earlier cells have started:\nlate\n\n',
    );
  });

  it('passes output on before it ends', async () => {
    const early = Promise.withResolvers<OutputPart>();
    // One write: two may be two pieces of output.
    const code = 'known = 1\nprint("early\\n", end="")\nwhile True: pass';
    const ended = run(kernel, code, { onOutput: early.resolve });
    expect(await early.promise).toEqual({ channel: 'stdout', text: 'early\n' });
    kernel.interrupt();
    expect(await ended).toMatchObject({
      exit: 'interrupted',
      error: { name: 'KeyboardInterrupt' },
      defined: ['known'],
    });
  });

  it('keeps and counts output up to its limit', async () => {
    const written = 3 * 1024 * 1024;
    const end = await run(kernel, `print("é" * ${written / 2}, end="")`);
    expect(end).toMatchObject({ exit: 'ok', outputBytes: written, discardedBytes: written - 1024 * 1024 });
    expect(textOf(end)).toBe('é'.repeat(512 * 1024));
    expect(end.notices).toEqual([`output limit reached: ${written - 1024 * 1024} bytes are discarded`]);
  });

  it('loses nothing of 50,000 lines', async () => {
    const end = await run(kernel, 'for i in range(50_000): print(i)');
    expect(textOf(end)).toBe(Array.from({ length: 50_000 }, (_, i) => `${i}\n`).join(''));
  });

  it('does not write what is no Unicode', async () => {
    expect(textOf(await run(kernel, 'print("\\ud800|\\x1b[31mred\\x1b[0m")'))).toBe('\uFFFD|red\n');
  });
});

describe('an interrupt', () => {
  it('ends a cell at its time limit and keeps the variables', async () => {
    const kernel = await sandbox.startKernel();
    // In a cell without a limit, which a kernel without a processor would reach first.
    await run(kernel, 'x = 1');
    const end = await run(kernel, 'while True: pass', { timeoutMs: 1500 });
    expect(end).toMatchObject({ exit: 'timeout', notices: ['time limit of 1.5 s reached'], names: ['x'] });
    expect(textOf(await run(kernel, 'x'))).toBe('1\n');
  });

  it('wakes up code that sleeps, and code that awaits', async () => {
    const kernel = await sandbox.startKernel();
    const sleeping = await run(kernel, 'import time; time.sleep(600)', { timeoutMs: 300 });
    expect(sleeping).toMatchObject({ exit: 'timeout', error: { name: 'KeyboardInterrupt' } });
    const awaiting = await run(kernel, 'import asyncio; await asyncio.sleep(600)', { timeoutMs: 300 });
    expect(awaiting.exit).toBe('timeout');
    expect(textOf(await run(kernel, 'print("alive")'))).toBe('alive\n');
  });

  it('reaches code that has not started', async () => {
    const kernel = await sandbox.startKernel();
    const running = run(kernel, 'while True: pass');
    kernel.interrupt();
    expect(await running).toMatchObject({ exit: 'interrupted', error: { name: 'KeyboardInterrupt' } });
    kernel.interrupt();
    expect(await run(kernel, '"the next one"')).toMatchObject({ exit: 'ok' });
  });

  it('does not cut a frame in two while code prints', async () => {
    const kernel = await sandbox.startKernel({ limits: { outputBytes: 64 * 1024 * 1024 } });
    for (let i = 0; i < 20; i++) {
      const end = await run(kernel, 'while True: print("x" * 1000)', { timeoutMs: 20 + i });
      expect(end.exit).toBe('timeout');
    }
    expect(textOf(await run(kernel, 'print("alive")'))).toBe('alive\n');
  });

  it('that is ignored for 5 s ends the kernel as unresponsive', async () => {
    const kernel = await sandbox.startKernel();
    await run(kernel, 'kept = 1');
    const code =
      'import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint("deaf\\n", end="")\nwhile True: pass';
    const isDeaf = Promise.withResolvers<OutputPart>();
    const running = run(kernel, code, { timeoutMs: 600_000, onOutput: isDeaf.resolve });
    await isDeaf.promise;
    kernel.interrupt();
    const end = await running;
    expect(end).toMatchObject({ exit: 'interrupted', kernelEnd: { reason: 'unresponsive' }, names: ['kept'] });
    expect(textOf(end)).toBe('deaf\n');
    expect(await kernel.ended).toMatchObject({ reason: 'unresponsive' });
  });
});

describe('the end of a kernel', () => {
  it('ends its cell, with its output so far and the names that are lost', async () => {
    const kernel = await sandbox.startKernel();
    await run(kernel, 'kept = 1');
    const end = await run(kernel, 'print("last words"); import os; os.kill(os.getpid(), 9)');
    expect(end).toMatchObject({ exit: 'died', kernelEnd: { reason: 'died' }, names: ['kept'], nameCount: 1 });
    expect(textOf(end)).toBe('last words\n');
    await expect(run(kernel, '1')).rejects.toThrow(KernelEnded);
  });

  it('is noticed between two cells', async () => {
    const kernel = await sandbox.startKernel();
    await run(kernel, 'import os, threading; threading.Timer(0.2, os._exit, [3]).start()');
    expect(await kernel.ended).toMatchObject({ reason: 'died' });
  });

  it('reports where native code has crashed', async () => {
    const kernel = await sandbox.startKernel();
    const end = await run(kernel, 'import ctypes; ctypes.string_at(0)');
    expect(end).toMatchObject({ exit: 'died', kernelEnd: { reason: 'died' } });
    expect(textOf(end)).toContain('Fatal Python error: Segmentation fault');
  });

  it('by stop has the reason that was given', async () => {
    const kernel = await sandbox.startKernel();
    const running = run(kernel, 'while True: pass');
    await kernel.stop('idle');
    expect(await kernel.ended).toEqual({ reason: 'stopped', detail: 'idle' });
    expect(await running).toMatchObject({ exit: 'died', kernelEnd: { reason: 'stopped' } });
  });
});
