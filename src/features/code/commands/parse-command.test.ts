import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { fc } from '../../../../test/support/fast-check.ts';
import { describe, expect, it } from 'vitest';
import { SEED } from '../../../../test/support/seed.ts';
import { normalizeCommand, parseCommand, plainWords } from './parse-command.ts';

const run = promisify(execFile);

/** The pieces of a text; those that are opaque begin with `?`. */
function piecesOf(text: string): string[] {
  return parseCommand(text).pieces.map((piece) => (piece.isOpaque ? `?${piece.text}` : piece.text));
}

function commandsOf(text: string): string[] {
  return parseCommand(text).pieces.flatMap(({ commands }) => commands);
}

describe('a line is split into pieces', () => {
  it.each<[string, string[]]>([
    ['ls', ['ls']],
    ['', []],
    ['  \n\t', []],
    ['# only a comment', []],
    ['  ls -la /tmp  ', ['ls -la /tmp']],
    ['a && b', ['a', 'b']],
    ['a||b', ['a', 'b']],
    ['a | b |& c', ['a', 'b', 'c']],
    ['a; b;', ['a', 'b']],
    ['a & b &', ['a', 'b']],
    ['a\nb\n\nc', ['a', 'b', 'c']],
    ['a &&\n b', ['a', 'b']],
    ['a && b | c || d; e', ['a', 'b', 'c', 'd', 'e']],
    ['echo "a && b; c"', ['echo "a && b; c"']],
    ["echo 'a | b' | c", ["echo 'a | b'", 'c']],
    ["echo 'two\nlines'", ["echo 'two\nlines'"]],
    ['echo a\\;b', ['echo a\\;b']],
    ['echo a\\ b', ['echo a\\ b']],
    ['echo "a \\" b" c', ['echo "a \\" b" c']],
    ['echo \\\n  a', ['echo \\\n  a']],
    ['ls # all & sundry', ['ls']],
    ['ls # first\nrm x', ['ls', 'rm x']],
    ['echo a#b', ['echo a#b']],
    ['echo $HOME "$x" ${y}', ['echo $HOME "$x" ${y}']],
    ['ls *.txt [ab]? ~/x', ['ls *.txt [ab]? ~/x']],
    ['find . -name {} \\;', ['find . -name {} \\;']],
    ['ls 2>&1', ['ls 2>&1']],
    ['echo x >&2', ['echo x >&2']],
    ['ls >/dev/null 2>&1', ['ls >/dev/null 2>&1']],
    ['ls 2> /dev/null | wc', ['ls 2> /dev/null', 'wc']],
    ['ls &>/dev/null', ['ls &>/dev/null']],
    ['grep --include="*.py" x', ['grep --include="*.py" x']],
    ["awk '{print $1}' f", ["awk '{print $1}' f"]],
    ['echo größer 日本', ['echo größer 日本']],
    ["printf 'a\\nb'", ["printf 'a\\nb'"]],
    ['echo x nope {}', ['echo x nope {}']],
  ])('%j', (text, pieces) => {
    expect(piecesOf(text)).toEqual(pieces);
  });
});

describe('a command that may run more than it shows is opaque', () => {
  it.each<[string, string[]]>([
    ['echo $(ls)', ['?echo $(ls)']],
    ['echo "$(ls)"', ['?echo "$(ls)"']],
    ['echo `ls`', ['?echo `ls`']],
    ['echo "`ls`"', ['?echo "`ls`"']],
    ['diff <(a) <(b)', ['?diff <(a) <(b)']],
    ['tee >(a)', ['?tee >(a)']],
    ['echo $((a[$(ls)]))', ['?echo $((a[$(ls)]))']],
    ['echo ${x:-$(ls)}', ['?echo ${x:-$(ls)}']],
    ['echo ${x@P}', ['?echo ${x@P}']],
    ['echo ${!x}', ['?echo ${!x}']],
    ['cat a > b', ['?cat a > b']],
    ['cat a >> b && c', ['?cat a >> b', 'c']],
    ['cat a >| b', ['?cat a >| b']],
    ['cat a &> b', ['?cat a &> b']],
    ['cat a >& b', ['?cat a >& b']],
    ['cat a 3<> b', ['?cat a 3<> b']],
    ['cat < b', ['?cat < b']],
    ['cat <<< b', ['?cat <<< b']],
    ['echo x >/dev/null2', ['?echo x >/dev/null2']],
    ['echo x >/dev/tcp/1.2.3.4/80', ['?echo x >/dev/tcp/1.2.3.4/80']],
    ['cat <<E\nls\nE', ['?cat <<E\nls\nE']],
    ['cat <<E && b\nls\nE\nc', ['?cat <<E && b\nls\nE\nc']],
    ['{ a; b; } && c', ['?{ a; b; }', 'c']],
    ['(a && b) | c', ['?(a && b)', 'c']],
    ['if a; then b; fi; c', ['?if a; then b; fi', 'c']],
    ['for i in a b; do rm $i; done', ['?for i in a b; do rm $i; done']],
    ['while a; do b; done', ['?while a; do b; done']],
    ['case a in b) c;; esac', ['?case a in b) c;; esac']],
    ['[[ -f a ]] && b', ['?[[ -f a ]]', 'b']],
    ['(( a ))', ['?(( a ))']],
    ['f() { rm x; }; f', ['?f() { rm x; }', 'f']],
    ['function f { rm x; }', ['?function f { rm x; }']],
    ['! a | b', ['?! a | b']],
    ['time a', ['?time a']],
    ['coproc a', ['?coproc a']],
    ['X=1 a', ['?X=1 a']],
    ['PATH=.', ['?PATH=.']],
    ['a=(b)', ['?a=(b)']],
    ['eval ls', ['?eval ls']],
    ['source f', ['?source f']],
    ['. f', ['?. f']],
    ['exec rm f', ['?exec rm f']],
    ['command rm f', ['?command rm f']],
    ["trap 'rm f' EXIT", ["?trap 'rm f' EXIT"]],
    ["alias ls='rm f'", ["?alias ls='rm f'"]],
    ["declare 'a[$(rm f)]=1'", ["?declare 'a[$(rm f)]=1'"]],
    ["printf -v 'a[$(rm f)]' x", ["?printf -v 'a[$(rm f)]' x"]],
    ["test -v 'a[$(rm f)]'", ["?test -v 'a[$(rm f)]'"]],
    ['hash -p /bin/rm ls', ['?hash -p /bin/rm ls']],
    ['$cmd f', ['?$cmd f']],
    ['"rm" f', ['?"rm" f']],
    ['r\\m f', ['?r\\m f']],
    ['/bin/r? f', ['?/bin/r? f']],
    ['{rm,-rf,f}', ['?{rm,-rf,f}']],
    ['git {log,-p}', ['?git {log,-p}']],
    ['git log -"-output=f"', ['?git log -"-output=f"']],
    ["echo $'a\\'b'", ["?echo $'a\\'b'"]],
    ['echo $"a"', ['?echo $"a"']],
    ['r\\\nm f', ['?r\\\nm f']],
    ['echo "a', ['?echo "a']],
    ["ls; echo 'a", ["?ls; echo 'a"]],
    ['ls; )', ['?ls; )']],
    ['a; ; rm b', ['?a; ; rm b']],
    ['a &&', ['?a &&']],
    ['ls\r\nrm x', ['?ls\r\nrm x']],
    ['ls\0; rm x', ['?ls\0; rm x']],
    ['ls\u00A0x', ['?ls\u00A0x']],
    ['ls \u202Etxt', ['?ls \u202Etxt']],
    ['ls \uD800', ['?ls \uD800']],
  ])('%j', (text, pieces) => {
    expect(piecesOf(text)).toEqual(pieces);
  });
});

it.each(['cat a > b', 'cat $(ls)', 'cat a & rm b', 'cat a\nrm b', 'cat a\\\n\nrm b', 'cat a | sh', 'X=1 cat a'])(
  'a rule that allows `cat *` does not allow %j',
  (text) => {
    const isAllowed = parseCommand(text).pieces.every(
      ({ isOpaque, commands }) => !isOpaque && commands.every((command) => command.startsWith('cat ')),
    );
    expect(isAllowed).toBe(false);
  },
);

describe('the commands of a piece', () => {
  it.each<[string, string[]]>([
    ['cat   a\t b', ['cat a b']],
    ['cat "a  b"', ['cat "a  b"']],
    ['cat \\\n  a', ['cat a']],
    ['X=1   rm  f', ['X=1 rm f', 'rm f']],
    ['cat a > b', ['cat a > b', 'cat a']],
    ["'rm'  f", ["'rm' f", 'rm f']],
    ['\\rm f', ['\\rm f', 'rm f']],
    ['command rm f', ['command rm f', 'rm f']],
  ])('%j', (text, commands) => {
    expect(commandsOf(text)).toEqual(commands);
  });

  it.each([
    'echo $(rm f)',
    'echo "$(rm f)"',
    'echo `rm f`',
    'echo "${x:-`rm f`}"',
    'echo `echo \\`rm f\\``',
    'cat <(rm f)',
    'cat <<E\n$(rm f)\nE',
    'cat <<E && rm f\nbody\nE',
    '{ rm f; }',
    '( rm f )',
    'if rm f; then a; fi',
    'while a; do rm f; done',
    'case a in b) rm f;; esac',
    'g() { rm f; }',
    '! rm f',
    'time rm f',
    "eval 'a; rm f'",
    "trap 'rm f; a' EXIT",
    'a=$(rm f)',
    'a=([$(rm f)]=1)',
    'echo $((a[$(rm f)]))',
    'echo "unbalanced; rm f',
    'ls; ; rm f',
    'ls\r\nrm f',
  ])('of an opaque piece are found inside: %j', (text) => {
    expect(commandsOf(text)).toContain('rm f');
    expect(parseCommand(text).pieces.some(({ isOpaque }) => isOpaque)).toBe(true);
  });
});

it.each([
  ['nested', `${'$('.repeat(80)} rm f ${')'.repeat(80)}`],
  ['long', `${'echo x; '.repeat(4000)} rm f`],
])('a text that is too %s is one opaque piece with the commands in it', (_, text) => {
  expect(parseCommand(text).pieces).toMatchObject([{ text: text.trim(), isOpaque: true }]);
  expect(commandsOf(text)).toContain('rm f');
});

it('gives the words of a plain command only where its text determines them', () => {
  expect(plainWords('git log  "a b" c\\ d \'e\'"f" 2>&1')).toEqual(['git', 'log', 'a b', 'c d', 'ef']);
  expect(['git $x', 'git *', 'git ~', 'git $(x)', 'git > f'].map(plainWords)).toEqual(Array(5).fill(undefined));
});

it.each([
  ['  git   log\t x ', 'git log x'],
  ['echo "a  b"   c', 'echo "a  b" c'],
  ["echo 'a  b'   c", "echo 'a  b' c"],
  ['a   &&   b', 'a && b'],
  ['echo "$(echo "a  b")"   c', 'echo "$(echo "a  b")"   c'],
  ['cat <<E\na  b\nE', 'cat <<E\na  b\nE'],
  ['ls   # a  comment', 'ls   # a  comment'],
])('normalizes %j', (text, normal) => {
  expect(normalizeCommand(text)).toBe(normal);
});

describe('hostile text', () => {
  const SIZE = 65_536;
  const fragments = [
    'a ',
    '"',
    "'",
    '$(',
    '`',
    '\\`',
    '(',
    '{ ',
    '<<E ',
    'a|',
    ';',
    'a\n',
    '$((',
    'if ',
    '${a:-',
    '"$(',
    "$'\\'",
  ];
  const more = [
    '<(',
    'f() { ',
    'a=(',
    '#',
    'a #b\n',
    '>a ',
    '<<<',
    '\\\n',
    '[[ a && ',
    'a[$(',
    '`\\`',
    'coproc ',
    '! ',
    '${a//',
  ];

  // The parser alone takes 4 s for some of them. The measured time is the processor's, which other processes do not take.
  it.each([...fragments, ...more])('of many %j is bounded in time', (fragment) => {
    const start = process.cpuUsage();
    for (const size of [SIZE, 16_384]) {
      const { pieces } = parseCommand(fragment.repeat(Math.floor(size / fragment.length)));
      expect(pieces.reduce((sum, { commands }) => sum + commands.join('').length, 0)).toBeLessThan(1_000_000);
    }
    expect(process.cpuUsage(start).user).toBeLessThan(1_500_000);
  });
});

/** The arguments of each program that bash tries to run. */
async function executedBy(text: string): Promise<string[][]> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'everturn-bash-'));
  const log = 'printf "%s\\0" "$#" "$@"';
  // Every program is missing, so that bash calls the function instead.
  const env = { PATH: '/nowhere', x: 'variable', 'BASH_FUNC_command_not_found_handle%%': `() { ${log} >&3; }` };
  const script = 'exec 3>log; eval -- "$1"; wait';
  await run('/bin/bash', ['--norc', '--noprofile', '-c', script, 'bash', text], { cwd: folder, env }).catch(
    () => undefined,
  );
  const { stdout } = await run('/bin/cat', [path.join(folder, 'log')]);
  await rm(folder, { recursive: true });
  const words = stdout.split('\0').slice(0, -1);
  const found: string[][] = [];
  for (let at = 0; at < words.length; at += Number(words[at]) + 1) {
    found.push(words.slice(at + 1, at + 1 + Number(words[at])));
  }
  return found;
}

describe('bash itself', () => {
  const word = fc.constantFrom(
    'a',
    'b',
    'c',
    '"a b"',
    "'a;b'",
    'a\\ b',
    '"a\\"b"',
    'a#b',
    '2>&1',
    '>&2',
    'x=y',
    '{}',
    '1',
    '""',
  );
  const character = fc.constantFrom(...'ab  \t\n;&|#\'"\\(){}<>`$=!*2-'.split(''));
  const fragment = fc.oneof({ weight: 3, arbitrary: word }, { weight: 3, arbitrary: character }, fc.constant(' '));
  const text = fc.array(fragment, { minLength: 1, maxLength: 14 }).map((fragments) => fragments.join(''));

  it(`runs only the commands of pieces that are not opaque (seed ${SEED})`, async () => {
    const plain = fc
      .sample(text, { numRuns: 6000, seed: SEED })
      .map((one) => ({ text: one, words: parseCommand(one).pieces.map((piece) => wordsOf(piece)) }))
      .filter(({ words }) => words.length > 0 && words.every((one) => one !== undefined))
      .slice(0, 300);
    expect(plain.length).toBeGreaterThan(200);
    for (const one of plain) {
      const executed = await executedBy(one.text);
      const known = one.words.map((words) => words?.join('\0'));
      for (const words of executed) expect(known, JSON.stringify(one.text)).toContain(words.join('\0'));
      // A command after `||` runs only if something has failed, and nothing if a descriptor is not open.
      if (!/\||>&/.test(one.text)) expect(executed, JSON.stringify(one.text)).toHaveLength(known.length);
    }
  });

  function wordsOf({ text: piece, isOpaque }: { text: string; isOpaque: boolean }): string[] | undefined {
    return isOpaque ? undefined : plainWords(piece);
  }
});
