/**
 * Returns `compute` with a cache by the identity of its argument, for as long as the argument exists. The result may
 * depend only on the argument, and neither may be changed.
 */
export function memoized<K extends object, V extends object | number>(compute: (key: K) => V): (key: K) => V {
  const values = new WeakMap<K, V>();
  return (key) => {
    const known = values.get(key);
    if (known !== undefined) return known;
    const value = compute(key);
    values.set(key, value);
    return value;
  };
}
