import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import type { SessionEvent } from '../../../src/api/sessions/wire/events.ts';
import type { Run, RunItem, RunStreamEvent } from '../../../src/api/runs/wire/run.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { withTimeout } from '../../../src/lib/timeout.ts';
import { RunStream } from '../../support/runs.ts';
import { isFinding, PAUSE_MS } from './persistence.ts';
import type { Recorder } from './recorder.ts';
import type { SentRunDecision } from './sent.ts';
import type { Subject } from './subjects.ts';

type End = Extract<RunStreamEvent, { event: 'response' | 'error' }>;

/**
 * What one reader received of a run, over all of its connections: it resumes after its last event. Each event is checked
 * against those before it.
 */
export class RecordedRun {
  readonly id: string;
  readonly decisions: SentRunDecision[] = [];
  readonly items: RunItem[] = [];
  /** The texts of the item in progress, by the index of their part. */
  readonly partials = new Map<number, string>();
  connections = 0;
  /** Resolves with the last event; rejects with a response or an event that no server should send. */
  readonly done: Promise<End>;
  readonly #recorder: Recorder;
  readonly #owner: Subject;
  #last: RunStreamEvent | undefined;

  constructor(id: string, { recorder, owner }: { recorder: Recorder; owner: Subject }) {
    this.id = id;
    this.#recorder = recorder;
    this.#owner = owner;
    this.done = this.#follow();
    this.done.catch(() => undefined);
  }

  /** Resolves when the item in progress has so many words. */
  async words(count: number): Promise<void> {
    const words = () => [...this.partials.values()].join(' ').split(/\s+/).filter(Boolean).length;
    await expect.poll(words, { interval: 10 }).toBeGreaterThanOrEqual(count);
  }

  /** As the API has it. */
  async read(waitSeconds = 0): Promise<Run> {
    const path = `/v1/runs/${this.id}?wait_seconds=${waitSeconds}`;
    return (await this.#recorder.persist((api) => api.send<Run>('GET', path), { as: this.#owner })).body;
  }

  /** Decides on a call that it waits for. Returns the status of the response. */
  async decide(toolCallId: string, decision: Pick<SentRunDecision, 'status' | 'remember'>): Promise<number> {
    const sent: SentRunDecision = { toolCallId, ...decision, at: performance.now() };
    this.decisions.push(sent);
    const body = { approvals: [{ tool_call_id: toolCallId, ...decision }], wait_seconds: 0 };
    const headers = { 'idempotency-key': newId('req') };
    const path = `/v1/runs/${this.id}/resume`;
    const answer = await this.#recorder.persist((api) => api.send('POST', path, body, headers), { as: this.#owner });
    sent.response = answer.status;
    return sent.response;
  }

  /** Its log, of which the stream and the run are projections; its id is that of the run, as in operation ids. */
  async log(): Promise<{ turn: { id: string }; events: SessionEvent[] }> {
    const api = this.#recorder.as(this.#owner);
    const events = await api.list<SessionEvent>(`/v1/runs/${this.id}/events`);
    return { turn: { id: this.id }, events };
  }

  /** 1, 2 and 6: the reader's items, those of the last event and those that are stored are the same. */
  async check(timeoutMs: number): Promise<void> {
    const last = await withTimeout(timeoutMs, this.done, `run ${this.id} does not end`);
    const stored = await this.read();
    expect(this.items, `the items of run ${this.id}, as its reader has them`).toEqual(last.output);
    expect(stored).toMatchObject({ status: last.status, output: last.output });
  }

  async #follow(): Promise<End> {
    for (;;) {
      try {
        const api = this.#recorder.as(this.#owner);
        this.connections += 1;
        const stream = RunStream.open(api, `/v1/runs/${this.id}/stream`, {
          headers: {
            authorization: `Bearer ${this.#owner.key}`,
            ...(this.#last && { 'last-event-id': String(this.#last.sequence_number) }),
          },
          onEvent: (event) => this.#note(event),
        });
        await stream.done;
      } catch (error) {
        if (isFinding(error)) throw error;
      }
      const last = this.#last;
      if (last?.event === 'error' || (last?.event === 'response' && last.status !== 'requires_action')) return last;
      await sleep(PAUSE_MS);
    }
  }

  #note(event: RunStreamEvent): void {
    expect(event.sequence_number).toBeGreaterThan(this.#last?.sequence_number ?? 0);
    this.#last = event;
    if (event.event === 'partial') {
      expect(event.item_index).toBe(this.items.length);
      if (event.reset) this.partials.clear();
      const { index = 0, part } = event.delta ?? {};
      const text =
        part && ('text' in part ? part.text : 'args' in part ? part.args : 'data' in part ? part.data : undefined);
      this.partials.set(index, (this.partials.get(index) ?? '') + (text ?? ''));
    } else if (event.event === 'item') {
      expect(event.index).toBe(this.items.length);
      const { item } = event;
      // No text is doubled, and none is of another attempt.
      for (const [index, text] of this.partials) {
        const part = item.type === 'model' ? item.content[index] : undefined;
        if (part?.type === 'text') expect(part.text.slice(0, text.length)).toBe(text);
      }
      this.partials.clear();
      this.items.push(item);
    }
  }
}
