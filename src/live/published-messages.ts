import { applyDelta, charactersOf, emptyText } from '../core/message.ts';
import { MAX_LIVE_CHARACTERS, type InProgress, type LiveFrame, type LiveSnapshot } from './bus.ts';

interface Written {
  snapshot: LiveSnapshot;
  /** About what its text takes. */
  characters: number;
}

/** The messages that this process is writing, each folded as far as it has come: what snapshots are made of. */
export class PublishedMessages {
  readonly #turns = new Map<string, Map<string, Written>>();

  /** The turns with a message in progress. */
  get turnIds(): Iterable<string> {
    return this.#turns.keys();
  }

  has(turnId: string): boolean {
    return this.#turns.has(turnId);
  }

  add(frame: LiveFrame): void {
    const { n, delta, ...message } = frame;
    const turn = this.#turns.get(frame.turnId) ?? new Map<string, Written>();
    this.#turns.set(frame.turnId, turn);
    let written = turn.get(frame.messageId);
    if (!written || written.snapshot.attempt < frame.attempt) {
      written = { snapshot: { ...message, frames: 0, text: emptyText() }, characters: 0 };
      turn.set(frame.messageId, written);
    }
    const { snapshot } = written;
    // A zombie attempt may still be streaming after its successor has begun; only readers of frames sort that out.
    if (snapshot.attempt !== frame.attempt || snapshot.frames !== n) return;
    applyDelta(snapshot.text, delta);
    snapshot.frames += 1;
    written.characters += charactersOf(delta);
    if (written.characters <= MAX_LIVE_CHARACTERS) return;
    snapshot.frames = Infinity;
    snapshot.text = emptyText();
  }

  finish({ turnId, messageId, attempt }: Pick<InProgress, 'turnId' | 'messageId' | 'attempt'>): void {
    const turn = this.#turns.get(turnId);
    if (turn?.get(messageId)?.snapshot.attempt === attempt) turn.delete(messageId);
    if (turn?.size === 0) this.#turns.delete(turnId);
  }

  /** The messages in progress on a turn, but for those that are too long. They grow: who keeps one copies it. */
  on(turnId: string): LiveSnapshot[] {
    const written = [...(this.#turns.get(turnId)?.values() ?? [])];
    return written.map(({ snapshot }) => snapshot).filter(({ frames }) => frames !== Infinity);
  }
}
