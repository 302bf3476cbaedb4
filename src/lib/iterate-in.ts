/**
 * The values of a source, each requested within `run`, which sets an asynchronous context: by default a generator runs in
 * the context of the code that requests its next value.
 */
export async function* iterateIn<T>(run: <R>(work: () => R) => R, source: AsyncIterable<T>): AsyncGenerator<T> {
  const iterator = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      const { done, value } = await run(() => iterator.next());
      if (done) return;
      yield value;
    }
  } finally {
    await iterator.return?.();
  }
}
