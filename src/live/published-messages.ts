import { applyDelta, charactersOf, emptyText } from '../core/message.ts';
import { MAX_LIVE_CHARACTERS, type LiveFrame, type LiveSnapshot, type MessageAttempt } from './bus.ts';

interface Published {
  snapshot: LiveSnapshot;
  /** Approximate length of its text. */
  characters: number;
}

/** The messages that this process is writing, each folded up to its last frame: the source of snapshots. */
export class PublishedMessages {
  readonly #turns = new Map<string, Map<string, Published>>();

  /** The turns with a message in progress. */
  get turnIds(): Iterable<string> {
    return this.#turns.keys();
  }

  has(turnId: string): boolean {
    return this.#turns.has(turnId);
  }

  add(frame: LiveFrame): void {
    const { n, delta, ...message } = frame;
    const turn = this.#turns.get(frame.turnId) ?? new Map<string, Published>();
    this.#turns.set(frame.turnId, turn);
    let published = turn.get(frame.messageId);
    if (!published || published.snapshot.attempt < frame.attempt) {
      published = { snapshot: { ...message, frames: 0, text: emptyText() }, characters: 0 };
      turn.set(frame.messageId, published);
    }
    const { snapshot } = published;
    // A zombie attempt may still stream after the next attempt has started; only the readers of frames sort these out.
    if (snapshot.attempt !== frame.attempt || snapshot.frames !== n) return;
    applyDelta(snapshot.text, delta);
    snapshot.frames += 1;
    published.characters += charactersOf(delta);
    if (published.characters <= MAX_LIVE_CHARACTERS) return;
    snapshot.frames = Infinity;
    snapshot.text = emptyText();
  }

  finish({ turnId, messageId, attempt }: Pick<MessageAttempt, 'turnId' | 'messageId' | 'attempt'>): void {
    const turn = this.#turns.get(turnId);
    if (turn?.get(messageId)?.snapshot.attempt === attempt) turn.delete(messageId);
    if (turn?.size === 0) this.#turns.delete(turnId);
  }

  /** The messages in progress on a turn, except those that are too long. They grow: copy one to keep it. */
  on(turnId: string): LiveSnapshot[] {
    const published = [...(this.#turns.get(turnId)?.values() ?? [])];
    return published.map(({ snapshot }) => snapshot).filter(({ frames }) => frames !== Infinity);
  }
}
