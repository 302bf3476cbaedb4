import { createParser } from 'eventsource-parser';
import { expect, onTestFinished } from 'vitest';
import { actionEvent, type WireActionEvent } from '../../src/api/sessions/wire/actions.ts';

export interface ReceivedAction {
  id: number;
  event: WireActionEvent;
}

/** Reads the stream of actions of a caller. */
export class ActionReader {
  readonly received: ReceivedAction[] = [];
  readonly #abort = new AbortController();
  readonly #waiting = new Set<() => void>();
  #cursor: string | undefined;

  private constructor() {}

  /** Resolves when the stream is open and its cursor is known. It is closed with the test. */
  static async open(url: string, key?: string, after?: number): Promise<ActionReader> {
    const reader = new ActionReader();
    onTestFinished(() => reader.close());
    const response = await fetch(`${url}/v1/agents/actions/stream`, {
      headers: {
        ...(key && { authorization: `Bearer ${key}` }),
        ...(after !== undefined && { 'last-event-id': String(after) }),
      },
      signal: reader.#abort.signal,
    });
    if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
    expect(response.headers.get('content-type')).toMatch(/^text\/event-stream/);
    void reader.#read(response);
    await reader.#until(() => reader.#cursor !== undefined);
    return reader;
  }

  /** The cursor with which the stream began. */
  get cursor(): number {
    return Number(this.#cursor);
  }

  /** Waits until this many events have arrived, and returns them. */
  async next(count: number): Promise<ReceivedAction[]> {
    await this.#until(() => this.received.length >= count);
    return this.received;
  }

  close(): void {
    this.#abort.abort();
  }

  async #until(isDone: () => boolean): Promise<void> {
    while (!isDone()) {
      await new Promise<void>((resolve) => {
        this.#waiting.add(resolve);
      });
    }
  }

  async #read(response: Response): Promise<void> {
    const parser = createParser({
      onEvent: ({ id, data }) => {
        const event = actionEvent.parse(JSON.parse(data));
        expect(event).toEqual(JSON.parse(data));
        expect(Number(id)).toBeGreaterThan(this.received.at(-1)?.id ?? this.cursor);
        this.received.push({ id: Number(id), event });
      },
    });
    const decoder = new TextDecoder();
    try {
      for await (const chunk of response.body ?? []) {
        const text = decoder.decode(chunk, { stream: true });
        this.#cursor ??= /^id: (\d+)$/m.exec(text)?.[1];
        parser.feed(text);
        for (const wake of this.#waiting) wake();
        this.#waiting.clear();
      }
    } catch (error) {
      if (!this.#abort.signal.aborted) throw error;
    }
  }
}
