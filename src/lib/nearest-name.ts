/** At most half of the letters may differ, and no more than this, unless a third of the letters is more. */
const MAX_ERRORS = 3;

/**
 * The known name that a name was probably meant to be: the one with the fewest letters to insert, delete, replace or swap
 * with their neighbours. Undefined if none is near: at most half of a short name may differ, and a third of a long one.
 */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  let nearest: string | undefined;
  let least = Infinity;
  for (const one of known) {
    const most = mostErrors(Math.max(name.length, one.length));
    // Names may come from requests: a long one must not cost a table of its length.
    if (Math.abs(name.length - one.length) > most) continue;
    const distance = editDistance(name, one);
    if (distance > most || distance >= least) continue;
    [nearest, least] = [one, distance];
  }
  return nearest;
}

function mostErrors(length: number): number {
  return Math.max(Math.min(MAX_ERRORS, Math.floor(length / 2)), Math.floor(length / 3));
}

/** The optimal string alignment distance, in UTF-16 code units. */
function editDistance(from: string, to: string): number {
  let twoAbove: number[] = [];
  let above = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (let i = 1; i <= from.length; i++) {
    const row = [i];
    for (let j = 1; j <= to.length; j++) {
      const replaced = at(above, j - 1) + (from[i - 1] === to[j - 1] ? 0 : 1);
      const isSwap = i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1];
      row.push(Math.min(replaced, at(above, j) + 1, at(row, j - 1) + 1, isSwap ? at(twoAbove, j - 2) + 1 : Infinity));
    }
    [twoAbove, above] = [above, row];
  }
  return at(above, to.length);
}

function at(row: readonly number[], i: number): number {
  return row[i] ?? Infinity;
}
