import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Kernel } from '../../../src/features/code/kernel/kernel.ts';
import type { KernelCall } from '../../../src/features/code/kernel/kernel-calls.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { openSandbox, runAnswering, wallOf, type Answer, type TestSandbox } from '../../support/kernels.ts';

let sandbox: TestSandbox;
let kernel: Kernel;

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  sandbox = await openSandbox(await wallOf('sandbox'));
  kernel = await sandbox.startKernel();
});

afterAll(() => sandbox.remove());

type Command = Extract<KernelCall, { kind: 'command' }>;

/** Runs a cell of which each command prints the same. */
async function commandsOf(
  code: string,
  answer: Answer = { status: 'exited', output: 'one\ntwo\n', exitCode: 0 },
): Promise<{ commands: Command[]; texts: string[]; text: string; exit: string; error: unknown; counted: number }> {
  const { end, text, batches } = await runAnswering(kernel, code, () => answer);
  const commands = batches.flat().filter((call) => call.kind === 'command');
  return {
    commands,
    texts: commands.map((call) => call.text),
    text,
    exit: end.exit,
    error: end.error,
    counted: end.commands,
  };
}

describe('a command', () => {
  it('of `!` prints its output, and leaves its exit code', async () => {
    const answer = { status: 'exited', output: 'out\n', exitCode: 3 } as const;
    expect(await commandsOf('!ls -l\nprint(_exit_code)', answer)).toMatchObject({
      texts: ['ls -l'],
      text: 'out\n3\n',
      exit: 'ok',
      counted: 1,
    });
  });

  it('that is assigned gives its lines, as a list of IPython', async () => {
    const { texts, text } = await commandsOf(`x = !printf 'a\\nb'\nprint(x, x.s, type(x).__name__, _exit_code)`);
    expect(texts).toEqual([`printf 'a\\nb'`]);
    expect(text).toBe("['one', 'two'] one two SList 0\n");
  });

  it('has the directory and the environment of the code', async () => {
    const code = `import os\nos.environ["MINE"] = "é"\nos.makedirs("sub", exist_ok=True)\nos.chdir("sub")\n!ls\ndel os.environ["MINE"]`;
    const { commands } = await commandsOf(code);
    expect(commands).toMatchObject([
      { cwd: '/workspace/sub', isScript: false, env: { MINE: 'é', HOME: '/home/agent' } },
    ]);
  });

  it.each([
    ['!!ls', 'ls'],
    ['%system ls', 'ls'],
    ['%sx ls', 'ls'],
    ['get_ipython().system("ls")', 'ls'],
    ['get_ipython().getoutput("ls")', 'ls'],
    ['%%system\nls', 'ls\n'],
    ['if True:\n    !ls', 'ls'],
    ['%ls -a', 'ls -F -a'],
  ])('may be written %j', async (code, text) => {
    expect(await commandsOf(code)).toMatchObject({ texts: [text], exit: 'ok' });
  });

  it('of pip is one of Python, with the interpreter of the kernel', async () => {
    const { texts } = await commandsOf('name = "requests"\n%pip install {name}==1');
    expect(texts).toEqual(['python -m pip install requests==1']);
  });

  it('may be captured', async () => {
    expect(await commandsOf('%%capture got\n!ls')).toMatchObject({ text: '' });
    expect(await commandsOf('got.stdout')).toMatchObject({ text: "'one\\ntwo\\n'\n" });
  });

  it('that is denied raises', async () => {
    const denied = { status: 'denied', message: 'ls was denied' } as const;
    const error = { name: 'ApprovalRejectedError', message: 'ls was denied' };
    expect(await commandsOf('!ls', denied)).toMatchObject({ exit: 'denied', error });
    expect(await commandsOf('x = !ls', denied)).toMatchObject({ exit: 'denied', error });
    expect(await commandsOf('%%bash\nls', denied)).toMatchObject({ exit: 'denied', error });
  });

  it('that fails raises', async () => {
    const failed = { status: 'failed', message: 'no runner' } as const;
    expect(await commandsOf('!ls', failed)).toMatchObject({ exit: 'error', error: { name: 'ToolRunnerError' } });
  });

  it.each([
    ['is too large', '!echo {"x" * (1 << 20)}'],
    ['has a null character', 'get_ipython().system("a\\0b")'],
    ['is no Unicode', 'get_ipython().system("\\ud800")'],
    [
      'has a large environment',
      'import os\nos.environ["A"] = "x" * 300_000\ntry: get_ipython().system("ls")\nfinally: del os.environ["A"]',
    ],
  ])('that %s is not made', async (_, code) => {
    expect(await commandsOf(code)).toMatchObject({ exit: 'error', error: { name: 'ToolRunnerError' }, counted: 0 });
  });
});

describe('a script', () => {
  it.each(['%%bash', '%%sh', '%%script bash'])('of %s is one command, and not expanded', async (magic) => {
    const { commands, text } = await commandsOf(`${magic}\nfor x in a b; do\n  echo $x {x}\ndone`);
    expect(commands).toMatchObject([{ isScript: true, text: 'for x in a b; do\n  echo $x {x}\ndone\n' }]);
    expect(text).toBe('one\ntwo\n');
  });

  it('that fails raises, after its output', async () => {
    const answer = { status: 'exited', output: 'out\n', exitCode: 2 } as const;
    const { text, error } = await commandsOf('%%bash\nexit 2', answer);
    expect(error).toMatchObject({ name: 'CalledProcessError' });
    expect(text).toMatch(/^out\n/);
  });

  it.each(['%%script python3', '%%perl', '%%bash -x'])('of another program is refused: %s', async (magic) => {
    expect(await commandsOf(`${magic}\nx`)).toMatchObject({ error: { name: 'UsageError' }, texts: [] });
  });

  it('is the whole cell', async () => {
    expect(await commandsOf('x = 1\n%%bash\nls')).toMatchObject({ error: { name: 'UsageError' }, texts: [] });
  });
});

describe('an expression in a command', () => {
  const names = 'name = "x y"; n = 2; d = {"k": "v"}; class_ = type("C", (), {"a": 1})\n';

  it.each([
    // Acceptance case 18.
    ['echo {name} {nope}', 'echo x y {nope}'],
    ['echo {n + 1} {name.upper()} {d["k"]} {name[0:1]}', 'echo 3 X Y v x'],
    ['echo $name $nope $n $class_.a', 'echo x y $nope 2 1'],
    ['echo {} { } {', 'echo {} { } {'],
    ['echo } {name} {', 'echo } x y {'],
    [`awk '{print $1}' f`, `awk '{print $1}' f`],
    [`awk '{print}' f; awk 'NR == 5 {exit}'`, `awk '{print}' f; awk 'NR == 5 {exit}'`],
    ['{ echo {name}; }', '{ echo x y; }'],
    [`curl -d '{"a": {"b": {n}}}'`, `curl -d '{"a": {"b": 2}}'`],
    ['echo {{name}} ${n} ${HOME}', 'echo {name} $2 ${HOME}'],
    ['echo $$name $$ $? $1 $HOME', 'echo $name $$ $? $1 $HOME'],
    [`echo '$name' "$name" "it's $name"`, `echo '$name' "x y" "it's x y"`],
    [`echo \\'$name`, `echo \\'x y`],
    ['find . -exec {name} {} \\;', 'find . -exec x y {} \\;'],
    ['echo {1 / 0} {name!r} {name:>5}', `echo {1 / 0} 'x y' {name:>5}`],
    ['echo é{name}→', 'echo éx y→'],
  ])('%s', async (command, expanded) => {
    expect((await commandsOf(`${names}!${command}`)).texts).toEqual([expanded]);
  });

  it('sees the names of the function that it is in', async () => {
    const code = 'def f(inner):\n    !echo {inner} $inner\n    x = !echo {inner}\nf("in")';
    expect((await commandsOf(code)).texts).toEqual(['echo in in', 'echo in']);
  });
});
