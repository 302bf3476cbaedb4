import type { UnsequencedRecord } from './records/log.ts';
import type { RefreshRequired } from './records/turn.ts';
import type { Subject } from './subject.ts';
import type { ToolkitRefresh, Verdict } from './turn-command.ts';

/** What a run of a turn passes on when it continues as new. */
interface State {
  messageId: string;
  pending: string[];
  /** The hashes of the accepted refreshes. */
  answered: [toolkit: string, hash: string][];
}

/** The toolkits that the client is to refresh before the next model call of the root agent. A part of `TurnActions`. */
export class ToolkitRefreshes {
  #messageId: string;
  #pending: Set<string>;
  #answered: Map<string, string>;

  constructor({ messageId, pending, answered }: State = { messageId: '', pending: [], answered: [] }) {
    this.#messageId = messageId;
    this.#pending = new Set(pending);
    this.#answered = new Map(answered);
  }

  /** Undefined if none was required. */
  get state(): State | undefined {
    if (this.#messageId === '') return undefined;
    return { messageId: this.#messageId, pending: [...this.#pending], answered: [...this.#answered] };
  }

  get isPending(): boolean {
    return this.#pending.size > 0;
  }

  require({ messageId, toolkits }: Pick<RefreshRequired, 'messageId' | 'toolkits'>): void {
    this.#messageId = messageId;
    this.#pending = new Set(toolkits);
    this.#answered = new Map();
  }

  /** The toolkits stay as they are. */
  giveUp(): void {
    this.#pending.clear();
  }

  /** A repetition is not refused. */
  refuse(refreshes: readonly ToolkitRefresh[]): Verdict {
    const refused = refreshes.findIndex((refresh) => !this.#isAccepted(refresh));
    if (refused < 0) return undefined;
    const message = `the toolkit ${refreshes[refused]?.toolkit} was already refreshed`;
    return { code: 'already_decided', message, param: `refreshes.${refused}` };
  }

  /** Applies what `refuse` accepts. */
  accept(refreshes: readonly ToolkitRefresh[], by: Subject, at: string): UnsequencedRecord[] {
    return refreshes.flatMap((refresh): UnsequencedRecord[] => {
      const { toolkit, hash } = refresh;
      if (!this.#pending.delete(toolkit)) return [];
      this.#answered.set(toolkit, hash);
      return [{ kind: 'toolkit.refreshed', at, by, ...refresh }];
    });
  }

  #isAccepted({ toolkit, messageId, hash }: ToolkitRefresh): boolean {
    const isExpected = this.#pending.has(toolkit) || this.#answered.get(toolkit) === hash;
    return messageId === this.#messageId && isExpected;
  }
}
