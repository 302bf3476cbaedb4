/** Milliseconds that a task takes. */
export async function timed(task: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await task();
  return performance.now() - start;
}

/** Tasks per second, with `atOnce` tasks running at any time. */
export async function rate(count: number, atOnce: number, task: (worker: number) => Promise<unknown>): Promise<number> {
  let left = count;
  const elapsed = await timed(() =>
    Promise.all(
      Array.from({ length: atOnce }, async (_, worker) => {
        while (left-- > 0) await task(worker);
      }),
    ),
  );
  return (count / elapsed) * 1000;
}

/** Executes the tasks in turn, `rounds` times each, so that all run under the same load. Returns the median of each. */
export async function alternate<K extends string>(
  rounds: number,
  tasks: Record<K, () => Promise<number>>,
): Promise<Record<K, number>> {
  const entries = Object.entries(tasks) as [K, () => Promise<number>][];
  const values = entries.map(([key, task]) => ({ key, task, results: [] as number[] }));
  for (let round = 0; round < rounds; round++) {
    for (const { task, results } of values) results.push(await task());
  }
  return Object.fromEntries(values.map(({ key, results }) => [key, median(results)])) as Record<K, number>;
}

export function median(values: number[]): number {
  return quantile(values, 0.5);
}

/** The value that this share of the others is below. */
export function quantile(values: number[], share: number): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length * share)] ?? Number.NaN;
}

export function round(value: number, digits = 1): number {
  return Number(value.toFixed(digits));
}
