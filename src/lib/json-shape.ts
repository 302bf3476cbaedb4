/** The nesting depth of a JSON text and an upper bound of the number of its values, without parsing it. */
export function jsonShape(text: string): { depth: number; values: number } {
  let depth = 0;
  let values = 1;
  let level = 0;
  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (char === '"') {
      at = endOfString(text, at);
    } else if (char === '{' || char === '[') {
      values += 1;
      depth = Math.max(depth, ++level);
    } else if (char === '}' || char === ']') {
      level -= 1;
    } else if (char === ',') {
      values += 1;
    }
  }
  return { depth, values };
}

/** The index of a string's closing quote. `indexOf` is several times as fast as a loop, and strings can be large. */
function endOfString(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let slashes = 0;
    while (text[at - 1 - slashes] === '\\') slashes += 1;
    if (slashes % 2 === 0) return at;
  }
  return text.length;
}
