import type { UnsequencedRecord } from './records/log.ts';
import type { UserSteered } from './records/turn.ts';
import type { Subject } from './subject.ts';

/** Messages for the root agent, which its model reads with its next call. All of them are accepted, or none. */
export interface SteerCommand {
  type: 'steer';
  /** Equal for equal requests: the messages of a repetition are not accepted again. See `RecentCommands`. */
  id: string;
  subject: Subject;
  sessionId: string;
  messages: UserSteered['content'][];
}

/** What a run of a turn passes on when it continues as new. */
interface State {
  unread: number;
  authors?: string[];
}

/** How many messages of a turn may wait for a model call: one prompt has all of them. */
export const MAX_UNREAD = 32;

/**
 * The messages of users and the pauses of a running turn, until they are recorded. A part of `TurnActions`.
 *
 * Records that arise while the root agent calls its model follow the message of that call. The call has not read them,
 * so for every reader of the log the next model call is the one that answers them; and readers may have been shown the
 * message, and the record of the servers before it, at the position in the log that follows what the call has read.
 */
export class Steering {
  /** How many of the recorded messages no model call has read. */
  #unread: number;
  /** The subjects whose messages the turn has accepted. */
  readonly #authors: Set<string>;
  readonly #unrecorded: UnsequencedRecord[] = [];
  #isCalling = false;

  constructor({ unread, authors }: State = { unread: 0 }) {
    this.#unread = unread;
    this.#authors = new Set(authors);
  }

  /** Taken while no model call runs, so all that was accepted is recorded. */
  get state(): State {
    const { authors } = this;
    return { unread: this.#unread, ...(authors.length > 0 && { authors }) };
  }

  /** The ids of the subjects that have sent it messages. */
  get authors(): string[] {
    return [...this.#authors];
  }

  /** Whether the root agent is calling its model. */
  get isCalling(): boolean {
    return this.#isCalling;
  }

  get hasUnread(): boolean {
    return this.#unread > 0;
  }

  /** Whether the end of the current task records something that was accepted earlier. */
  get mustRecord(): boolean {
    return !this.#isCalling && this.#unrecorded.length > 0;
  }

  hasRoomFor({ messages }: SteerCommand): boolean {
    const waiting = this.#unread + this.#unrecorded.filter(isMessage).length;
    return waiting + messages.length <= MAX_UNREAD;
  }

  /** Adds the records of a command. */
  add(records: UnsequencedRecord[]): void {
    this.#unrecorded.push(...records);
  }

  accept({ id: commandId, subject: by, sessionId, messages }: SteerCommand, at: string): void {
    this.#authors.add(by.subjectId);
    for (const content of messages) {
      this.add([{ kind: 'user.steered', at, by, commandId, sessionId, content }]);
    }
  }

  /** The records to be added now; none while the model is called. */
  record(): UnsequencedRecord[] {
    if (this.#isCalling) return [];
    this.#unread += this.#unrecorded.filter(isMessage).length;
    return this.#unrecorded.splice(0);
  }

  /** The root agent calls its model, which reads all that is recorded. */
  modelCalled(): void {
    this.#isCalling = true;
    this.#unread = 0;
  }

  modelEnded(): void {
    this.#isCalling = false;
  }
}

function isMessage({ kind }: UnsequencedRecord): boolean {
  return kind === 'user.steered';
}
