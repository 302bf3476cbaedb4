import { CancellationScope, sleep } from '@temporalio/workflow';

/** Wakes a workflow when something expires: without its timer no task would end then. */
export class Alarm {
  readonly #due: () => number | undefined;
  #timer: { at: number; scope: CancellationScope } | undefined;

  /** @param due when something expires next: milliseconds since 1970 */
  constructor(due: () => number | undefined) {
    this.#due = due;
  }

  /** Starts a timer for what is due next, in place of the one before. */
  set(): void {
    const at = this.#due();
    if (at === this.#timer?.at) return;
    this.#timer?.scope.cancel();
    this.#timer = undefined;
    if (at === undefined) return;
    const scope = new CancellationScope({ cancellable: true });
    this.#timer = { at, scope };
    scope
      .run(() => sleep(Math.max(1, at - Date.now())))
      .then(() => {
        // The clocks of Temporal's hosts differ, so it may have fired early.
        this.#timer = undefined;
        this.set();
      })
      .catch(() => undefined);
  }
}
