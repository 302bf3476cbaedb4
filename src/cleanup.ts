/** Undoes what was started, the last first. */
export class Cleanup {
  readonly #steps: (() => Promise<void>)[] = [];
  #running: Promise<void> | undefined;

  add(step: () => Promise<void>): void {
    this.#steps.unshift(step);
  }

  run(): Promise<void> {
    this.#running ??= this.#runSteps();
    return this.#running;
  }

  async #runSteps(): Promise<void> {
    const failures: unknown[] = [];
    for (const step of this.#steps) await step().catch((error: unknown) => failures.push(error));
    if (failures.length > 0) throw new AggregateError(failures, 'the server did not stop cleanly');
  }
}
