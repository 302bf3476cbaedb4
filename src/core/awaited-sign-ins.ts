import type { AuthRequired } from './records/servers.ts';
import type { Subject } from './subject.ts';

/**
 * A sign-in that a turn has requested has ended: it was granted or declined, another one has given access to the same
 * server, or its link has ended. The calls that have waited for it are tried again, which shows the outcome.
 */
export interface SignInCommand {
  type: 'sign_in';
  id: string;
  signInId: string;
  /** The owner of the session, who has signed in or declined; absent if the link has ended. */
  by?: Subject;
}

/** What a run of a turn passes on when it continues as new. */
interface State {
  threads: [threadId: string, signInIds: string[]][];
  ended: string[];
}

/**
 * The sign-ins of a turn that waits: those without which threads cannot call their models, and those that have ended.
 * Tool calls that wait for a sign-in are among the calls of `TurnActions`.
 */
export class AwaitedSignIns {
  readonly #threads: Map<string, Set<string>>;
  /** If several threads request the same sign-in, one of them may do so after it has ended. */
  readonly #ended: Set<string>;

  constructor({ threads, ended }: State = { threads: [], ended: [] }) {
    this.#threads = new Map(threads.map(([id, signInIds]) => [id, new Set(signInIds)]));
    this.#ended = new Set(ended);
  }

  get state(): State {
    return { threads: [...this.#threads].map(([id, signInIds]) => [id, [...signInIds]]), ended: [...this.#ended] };
  }

  /** A thread's model was not called, because its servers require sign-ins. */
  require({ threadId, servers }: Pick<AuthRequired, 'threadId' | 'servers'>): void {
    const missing = servers.filter(({ signInId }) => !this.#ended.has(signInId));
    if (missing.length > 0) this.#threads.set(threadId, new Set(missing.map(({ signInId }) => signInId)));
  }

  /** Whether a thread waits until it can call its model. */
  isWaiting(threadId: string): boolean {
    return this.#threads.has(threadId);
  }

  hasEnded(signInId: string | undefined): boolean {
    return signInId !== undefined && this.#ended.has(signInId);
  }

  end(signInId: string): void {
    this.#ended.add(signInId);
    for (const [threadId, missing] of this.#threads) {
      if (missing.delete(signInId) && missing.size === 0) this.#threads.delete(threadId);
    }
  }

  /** Ends the wait of all threads: their models are called without the servers. */
  giveUp(): void {
    this.#threads.clear();
  }

  threadEnded(threadId: string): void {
    this.#threads.delete(threadId);
  }
}
