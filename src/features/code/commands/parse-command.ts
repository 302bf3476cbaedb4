import { forEachChild, parse, type Command, type ParsedScript, type SyntaxNode } from 'unbash';
import type { CommandPiece } from '../permissions/permission-action.ts';
import { hasHiddenCharacters, isPlain, normalizeCommand, trimBlanks } from './plain-command.ts';

export { normalizeCommand, plainWords } from './plain-command.ts';

/** Beyond these limits a text is one opaque piece: the parser's time for nesting grows with the product of both. */
const MAX_CHARACTERS = 16_384;
const MAX_NESTED = 64;
const NESTING = /[(`{[]|<</g;
/** Bounds what rules are compared with. */
const MAX_COMMANDS = 2_000;
const MAX_COMMAND_CHARACTERS = 262_144;

/** The separators between two pieces. A comment starts only where a word could begin. */
const SEPARATOR = /(?:[ \t\n;&|]|\\\n|(?<![^ \t\n;&|])#[^\n]*)*/y;
/** Where a command may begin in a text that cannot be parsed. */
const CRUDE_SEPARATOR = /[\n;&|(){}`<>]+|\b(?:then|do|else|elif|if|while|until|time)\b|!/;

/** Builtins whose arguments are a command, or a text of commands. */
const WRAPPERS = new Set(['command', 'builtin', 'exec', 'eval', 'trap']);

/**
 * Parses a command line as bash does. It errs on the safe side: a piece that is not opaque runs exactly the command
 * that it shows; any other syntax makes its piece, or the whole text, opaque.
 */
export function parseCommand(text: string): { pieces: CommandPiece[] } {
  const script = parsed(text);
  if (!script) return { pieces: [opaque(text, crudeCommands(text))] };
  const leaves = script.commands.flatMap((statement) => leavesOf(statement));
  const found = leaves.map((leaf) => inside(leaf, text));
  const isUnderstood = found.every(({ isWhole }) => isWhole);
  if (!isUnderstood) return { pieces: [opaque(text, crudeCommands(text))] };
  const commands = found.map((one) => one.commands);
  // The body of a here-document is separate from its command.
  const isInOrder = !found.some(({ hasHereDocument }) => hasHereDocument) && areSeparated(leaves, text);
  if (!isInOrder) return { pieces: [opaque(text, commands.flat())] };
  return { pieces: leaves.map((leaf, i) => pieceOf(trimBlanks(text.slice(leaf.pos, leaf.end)), commands[i] ?? [])) };
}

function parsed(text: string): ParsedScript | undefined {
  if (text.length > MAX_CHARACTERS || (text.match(NESTING)?.length ?? 0) > MAX_NESTED) return undefined;
  if (hasHiddenCharacters(text)) return undefined;
  try {
    const script = parse(text);
    return script.errors?.length ? undefined : script;
  } catch {
    // The parser has some unbounded recursion.
    return undefined;
  }
}

/** The commands of a node that are connected by operators. */
function leavesOf(node: SyntaxNode): SyntaxNode[] {
  if (node.type === 'Statement') return leavesOf(node.command);
  const isConnected = node.type === 'AndOr' || (node.type === 'Pipeline' && node.prefixes.length === 0);
  return isConnected ? node.commands.flatMap((command) => leavesOf(command)) : [node];
}

function pieceOf(text: string, commands: string[]): CommandPiece {
  return isPlain(text) ? { text, isOpaque: false, commands: [normalizeCommand(text)] } : opaque(text, commands);
}

function opaque(text: string, commands: string[]): CommandPiece {
  const trimmed = trimBlanks(text);
  return { text: trimmed, isOpaque: true, commands: bounded(commands) ?? [trimmed] };
}

function bounded(commands: string[]): string[] | undefined {
  const different = [...new Set(commands)];
  const characters = different.reduce((sum, { length }) => sum + length, 0);
  return different.length > MAX_COMMANDS || characters > MAX_COMMAND_CHARACTERS ? undefined : different;
}

/** Whether nothing but separators is between, before and after the leaves. */
function areSeparated(leaves: SyntaxNode[], text: string): boolean {
  const ends = [0, ...leaves.map(({ end }) => end)];
  return ends.every((end, i) => {
    SEPARATOR.lastIndex = end;
    SEPARATOR.exec(text);
    return SEPARATOR.lastIndex === (leaves[i]?.pos ?? text.length);
  });
}

interface Inside {
  commands: string[];
  hasHereDocument: boolean;
  /** False if a part could not be parsed. */
  isWhole: boolean;
}

/** The contents of a node and its substitutions, which have their own source texts where backticks are escaped. */
function inside(root: SyntaxNode, text: string): Inside {
  const found: Inside = { commands: [], hasHereDocument: false, isWhole: true };
  const open = [{ node: root, source: text }];
  for (let next = open.pop(); next; next = open.pop()) {
    const { node } = next;
    const source = (node.type === 'Script' ? node.source : undefined) ?? next.source;
    if (node.type === 'Command') found.commands.push(...variantsOf(node, source));
    if (node.type === 'HereDoc') found.hasHereDocument = true;
    if (isBroken(node)) found.isWhole = false;
    forEachChild(node, (child) => void open.push({ node: child, source }));
  }
  return found;
}

function isBroken(node: SyntaxNode): boolean {
  if (node.type === 'Script') return (node.errors?.length ?? 0) > 0;
  const isSubstitution = node.type === 'CommandExpansion' || node.type === 'ProcessSubstitution';
  return isSubstitution && node.script === undefined;
}

/** A command as written, with only its name and words, and also without quotes. */
function variantsOf({ prefix, name, suffix }: Command, source: string): string[] {
  const textOf = (nodes: readonly { pos: number; end: number }[]) =>
    nodes.map(({ pos, end }) => source.slice(pos, end)).join(' ');
  const words = [name, ...suffix].filter((one) => one?.type === 'Word');
  const values = words.map(({ value }) => value);
  const isWrapper = WRAPPERS.has(values[0] ?? '');
  const written = [textOf([...prefix, ...(name ? [name] : []), ...suffix]), textOf(words), values.join(' ')];
  return [...written, ...(isWrapper ? crudeCommands(values.slice(1).join(' ')) : [])].filter((one) => one !== '');
}

/** All parts of an unparsable text that could be a command: possibly more than its commands. */
function crudeCommands(text: string): string[] {
  return [text, ...text.split(CRUDE_SEPARATOR)].map(trimBlanks).filter((one) => one !== '');
}
