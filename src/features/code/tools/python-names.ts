const KEYWORDS = new Set(
  (
    'False None True and as assert async await break class continue def del elif else except finally for from global if import ' +
    'in is lambda nonlocal not or pass raise return try while with yield'
  ).split(' '),
);
/** Well below the limit of file systems, 255 bytes. */
const MAX_LENGTH = 100;

/** Whether Python's grammar uses the word. */
export function isKeyword(word: string): boolean {
  return KEYWORDS.has(word);
}

/**
 * The module names for the names of servers, or of the tools of one server. Colliding names get `_2`, `_3` in the sort
 * order of the original names, independent of the order of the list.
 */
export function pythonNames(originals: readonly string[]): Map<string, string> {
  const names = new Map<string, string>();
  const used = new Set<string>();
  for (const original of [...new Set(originals)].sort()) {
    const name = unusedName(moduleName(original), used);
    used.add(name);
    names.set(original, name);
  }
  return names;
}

/** The name, or the first of `<name>_2`, `<name>_3` and so on that is not used. */
export function unusedName(name: string, used: ReadonlySet<string>): string {
  let unused = name;
  for (let number = 2; used.has(unused); number++) unused = `${name}_${number}`;
  return unused;
}

function moduleName(original: string): string {
  const name = original
    .slice(0, MAX_LENGTH)
    .toLowerCase()
    .replaceAll(/[^a-z0-9_]/g, '_');
  if (name === '' || /^\d/.test(name)) return `_${name}`;
  // Names such as `__init__` and `__path__` have a special meaning in packages.
  return isKeyword(name) || /^__.*__$/.test(name) ? `${name}_` : name;
}
