/**
 * The only form of command that a wildcard rule may allow: a name and words, with quotes and variables, and nothing
 * that runs another command. It is an allowlist independent of the parser, so that a parser bug alone allows nothing.
 */

/** Characters that are invisible or displace text: controls, marks of direction, blanks that are none for a shell. */
const HIDDEN = /[^\P{C}\t\n]|[^\P{Z} ]/u;

const VARIABLE = String.raw`\$(?:[A-Za-z_]\w*|[\d?$!#@*_-]|\{[A-Za-z_]\w*\})`;

/** Each alternative begins with different characters, so that no text is read twice. */
const TOKENS = new RegExp(
  [
    String.raw`(?<blank>(?:[ \t]|\\\n)+)`,
    String.raw`(?<single>'[^']*')`,
    String.raw`(?<double>"(?:[^"\\$\x60]|\\[^]|${VARIABLE})*")`,
    String.raw`(?<escaped>\\[^\n])`,
    `(?<variable>${VARIABLE})`,
    // `{}` is a word of find and xargs. Other braces expand.
    String.raw`(?<text>(?:[^\s"'$\x60\\|&;<>(){}]|\{\})+)`,
    String.raw`(?<duplicate>>&(?:\d+|-)(?![^ \t]))`,
    String.raw`(?<discard>&?>>?[ \t]*/dev/null(?![^ \t]))`,
    String.raw`(?<operator><(?!<)|[|&;>\n])`,
  ].join('|'),
  'yu',
);

type TokenKind = 'blank' | 'single' | 'double' | 'escaped' | 'variable' | 'text' | 'duplicate' | 'discard' | 'operator';

interface Token {
  kind: TokenKind;
  text: string;
}

interface PlainWord {
  source: string;
  /** The word as the program gets it, with a NUL for each variable. */
  value: string;
  hasQuotes: boolean;
  hasVariable: boolean;
  hasPattern: boolean;
}

const RESERVED = 'if then else elif fi for in do done while until case esac select function time coproc ! [[ ]]';
/** Builtins that run their arguments, redefine later names, or evaluate the subscript in a name such as `a[$(id)]`. */
const EVALUATING = `
  eval source . exec command builtin trap alias unalias enable hash fc bind complete compgen compopt let declare typeset local
  readonly export read mapfile readarray unset getopts wait test [ jobs
`;
const NOT_PLAIN = new Set(`${RESERVED} ${EVALUATING}`.split(/\s+/));

const PLAIN_NAME = /^[\p{L}\p{N}_./+@%:,-]+$/u;
const PATTERN = /[*?[\]~]/;

/** Whether a command consists only of a program's name, words, and redirections to no file. */
export function isPlain(command: string): boolean {
  const words = wordsOf(command);
  const [name, ...rest] = words ?? [];
  if (!name || name.hasQuotes || !PLAIN_NAME.test(name.value) || NOT_PLAIN.has(name.value)) return false;
  if (name.value === 'printf' && !isFormat(rest[0])) return false;
  return !rest.some(hidesOption);
}

/** The words of a plain command as the program gets them, if its text alone determines them. The first is the name. */
export function plainWords(command: string): string[] | undefined {
  const words = isPlain(command) ? wordsOf(command) : undefined;
  if (!words || words.some(({ hasVariable, hasPattern }) => hasVariable || hasPattern)) return undefined;
  return words.map(({ value }) => value);
}

/** A command with single blanks outside of quotes; only trimmed if its quotes cannot be recognized simply. */
export function normalizeCommand(text: string): string {
  const trimmed = trimBlanks(text);
  const tokens = tokensOf(trimmed);
  if (!tokens) return trimmed;
  return tokens.map(({ kind, text: token }) => (kind === 'blank' && /[ \t]/.test(token) ? ' ' : token)).join('');
}

/** Trims the blanks of a shell; `trim` would also remove other characters. */
export function trimBlanks(text: string): string {
  return text.replace(/^[ \t\n]+/, '').replace(/(?<![ \t\n])[ \t\n]+$/, '');
}

/** Whether a text has characters that deceive a reader, or that bash and this module may read differently. */
export function hasHiddenCharacters(text: string): boolean {
  return HIDDEN.test(text);
}

/** The tokens of a command; undefined for substitutions, here-documents, groups, comments and unclosed quotes. */
function tokensOf(text: string): Token[] | undefined {
  const tokens: Token[] = [];
  TOKENS.lastIndex = 0;
  for (let isWordStart = true; TOKENS.lastIndex < text.length;) {
    const groups = TOKENS.exec(text)?.groups;
    const found = Object.entries(groups ?? {}).find(([, value]) => value !== undefined);
    if (!found) return undefined;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the names of the groups
    const token: Token = { kind: found[0] as TokenKind, text: found[1] };
    if (isWordStart && token.text.startsWith('#')) return undefined;
    tokens.push(token);
    isWordStart = token.kind === 'blank' || token.kind === 'operator';
  }
  return tokens;
}

function wordsOf(command: string): PlainWord[] | undefined {
  const tokens = hasHiddenCharacters(command) ? undefined : tokensOf(command);
  const words: PlainWord[] = [];
  let word: PlainWord | undefined;
  for (const token of tokens ?? []) {
    if (token.kind === 'operator') return undefined;
    if (token.kind === 'blank') {
      // A line continuation without a blank would join two words.
      if (!/[ \t]/.test(token.text)) return undefined;
      word = undefined;
    } else if (token.kind === 'duplicate' || token.kind === 'discard') {
      // In `2>&1`, the number before belongs to the redirection.
      if (word && /^\d+$/.test(word.source)) words.pop();
      word = undefined;
    } else {
      if (!word)
        words.push((word = { source: '', value: '', hasQuotes: false, hasVariable: false, hasPattern: false }));
      addTo(word, token);
    }
  }
  return tokens && words;
}

function addTo(word: PlainWord, { kind, text }: Token): void {
  word.source += text;
  word.value += valueOf(kind, text);
  if (kind === 'single' || kind === 'double' || kind === 'escaped') word.hasQuotes = true;
  if (word.value.includes('\0')) word.hasVariable = true;
  if (kind === 'text' && PATTERN.test(text)) word.hasPattern = true;
}

function valueOf(kind: TokenKind, text: string): string {
  if (kind === 'single') return text.slice(1, -1);
  if (kind === 'escaped') return text.slice(1);
  if (kind === 'variable') return '\0';
  if (kind !== 'double') return text;
  return text
    .slice(1, -1)
    .replaceAll(new RegExp(String.raw`\\\n|\\(["\\$\x60])|${VARIABLE}`, 'g'), (found, escaped?: string) =>
      found.startsWith('$') ? '\0' : (escaped ?? ''),
    );
}

/** Whether a word is a format of printf that cannot become the option `-v`, which evaluates a subscript, too. */
function isFormat(word: PlainWord | undefined): boolean {
  return word !== undefined && !word.hasPattern && !/^(?:-|\0|$)/.test(word.value);
}

/** Whether the name of an option contains quotes or a variable: a rule about `-o` would not match `-"o"`. */
function hidesOption({ source, value, hasQuotes, hasVariable }: PlainWord): boolean {
  return value.startsWith('-') && (hasQuotes || hasVariable) && !/^-[^'"\\$]*=/.test(source);
}
