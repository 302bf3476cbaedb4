import { WorkspaceFileError } from './workspace-path.ts';

interface Edit {
  old_text: string;
  new_text: string;
}

/** Part of a text. */
interface Range {
  from: number;
  to: number;
}

/**
 * Replaces the only occurrence of `old_text`. If there is none, the texts are compared again without trailing blanks,
 * and with plain instead of typographic quotes and dashes, which models confuse. Line ends are ignored; the new text
 * gets those of the file. The rest of the text is unchanged.
 * @throws WorkspaceFileError if there is not exactly one occurrence
 */
export function editText(text: string, { old_text, new_text }: Edit): { text: string; isExact: boolean } {
  const exact = placesOf(old_text, text, plainLine);
  const isExact = exact.length > 0;
  const places = isExact ? exact : placesOf(old_text, text, looseLine);
  const [place, second] = places;
  if (!place) throw new WorkspaceFileError('unsuitable', 'old_text does not occur in the file: read it again');
  if (second) {
    const lines = [place, second].map(({ from }) => text.slice(0, from).split('\n').length);
    const where = `lines ${lines.join(' and ')}`;
    throw new WorkspaceFileError(
      'unsuitable',
      `old_text occurs more than once, first in ${where}: include more of the text around the right place`,
    );
  }
  const replacement = new_text.replaceAll('\r\n', '\n').replaceAll('\n', lineEndOf(text));
  return { text: text.slice(0, place.from) + replacement + text.slice(place.to), isExact };
}

/** The line end that most lines have. */
function lineEndOf(text: string): '\r\n' | '\n' {
  const crlf = text.split('\r\n').length - 1;
  const all = text.split('\n').length - 1;
  return crlf * 2 > all ? '\r\n' : '\n';
}

/** The form in which a line is compared; characters keep their positions. */
type LineForm = (line: string) => string;

function plainLine(line: string): string {
  return line.endsWith('\r') ? line.slice(0, -1) : line;
}

function looseLine(line: string): string {
  return line
    .trimEnd()
    .replaceAll(/[‘’‚‛′]/g, "'")
    .replaceAll(/[“”„‟″]/g, '"')
    .replaceAll(/[‐‑‒–—―−]/g, '-');
}

/** The first two occurrences of `sought`. */
function placesOf(sought: string, text: string, form: LineForm): Range[] {
  const lines = text.split('\n');
  const starts: number[] = [];
  let length = 0;
  for (const line of lines) {
    starts.push(length);
    length += line.length + 1;
  }
  const compared = lines.map(form);
  const pattern = sought.split('\n').map(form).join('\n');
  if (pattern === '') return [];
  const found = firstTwo(pattern, compared.join('\n'));
  /** Converts a position in the compared text into one in the original text. */
  const original = (at: number): number => {
    let line = 0;
    let left = at;
    for (; left > (compared[line] ?? '').length; line += 1) left -= (compared[line] ?? '').length + 1;
    return (starts[line] ?? 0) + left;
  };
  return found.map((from) => ({ from: original(from), to: original(from + pattern.length) }));
}

/**
 * The first two positions of a pattern, which may overlap, by the algorithm of Knuth, Morris and Pratt: its time is
 * linear in both texts, while `indexOf` takes minutes for adversarial texts.
 */
function firstTwo(pattern: string, text: string): number[] {
  /** For each length of a matched part, the length of its longest proper prefix that also ends it. */
  const shorter = new Int32Array(pattern.length + 1);
  const extend = (matched: number, unit: number): number => {
    let length = matched;
    while (length > 0 && (length === pattern.length || pattern.charCodeAt(length) !== unit))
      length = shorter[length] ?? 0;
    return pattern.charCodeAt(length) === unit ? length + 1 : 0;
  };
  for (let at = 1; at < pattern.length; at += 1) shorter[at + 1] = extend(shorter[at] ?? 0, pattern.charCodeAt(at));
  const found: number[] = [];
  let matched = 0;
  for (let at = 0; at < text.length && found.length < 2; at += 1) {
    matched = extend(matched, text.charCodeAt(at));
    if (matched === pattern.length) found.push(at + 1 - pattern.length);
  }
  return found;
}
