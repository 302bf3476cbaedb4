import type { SteerCommand } from './steering.ts';
import type { AnswerCommand } from './turn-command.ts';
import { answerKey } from './votes.ts';

/**
 * How many answers and messages are kept: a request is repeated soon or never. The last request is kept completely,
 * since one has at most as many (`src/api/runs/wire/resume.ts`).
 */
const MAX_KEYS = 2_050;

/** The answers and messages that a turn has accepted last: an equal one is a repetition. A part of `TurnActions`. */
export class RecentCommands {
  readonly #keys: Set<string>;

  constructor(keys: readonly string[] = []) {
    this.#keys = new Set(keys);
  }

  /** What a run of a turn passes on when it continues as new. */
  get state(): string[] {
    return [...this.#keys];
  }

  /** Whether all parts of a command were accepted before, in this command or in others. */
  has(command: AnswerCommand | SteerCommand): boolean {
    const parts = partsOf(command);
    return parts.length > 0 && parts.every((key) => this.#keys.has(key));
  }

  add(command: AnswerCommand | SteerCommand): void {
    for (const key of partsOf(command)) this.#keys.add(key);
    for (const key of this.#keys) {
      if (this.#keys.size <= MAX_KEYS) return;
      this.#keys.delete(key);
    }
  }
}

/** The keys of a command's parts: equal for equal answers of one subject, and for messages of equal requests. */
function partsOf(command: AnswerCommand | SteerCommand): string[] {
  if (command.type === 'steer') return [command.id];
  const { answers, refreshes = [], subject } = command;
  return [
    ...answers.map((answer) => answerKey(answer, subject)),
    ...refreshes.map(({ messageId, toolkit, hash }) => JSON.stringify([subject.subjectId, messageId, toolkit, hash])),
  ];
}
