import { newId } from '../engine/new-id.ts';
import type { ToolCallDelta } from '../core/message.ts';
import type { ToolInfo } from '../core/records.ts';
import type { ToolCallChunk } from '../models/provider.ts';

/** What clients may send as an id: some gateways put whole signatures into theirs. */
const USABLE_ID = /^[\x21-\x7e]{1,256}$/;

/** A tool call that the model has begun. */
interface Begun {
  providerId: string | undefined;
  /** Its place in our message; undefined while its name is not known. */
  position: number | undefined;
  /** What came before the name. */
  held: Omit<ToolCallDelta, 'index'>;
}

/**
 * Turns a provider's tool call chunks into deltas that begin with an id, a name and the tool, count from 0, and have
 * ids that are unique in the conversation, whatever the provider does about any of these.
 */
export class ToolCallDeltas {
  readonly #calls = new Map<number, Begun>();
  readonly #taken: Set<string>;
  readonly #infoOf: (name: string) => ToolInfo;
  #count = 0;

  constructor(knownCalls: Iterable<string>, infoOf: (name: string) => ToolInfo) {
    this.#taken = new Set(knownCalls);
    this.#infoOf = infoOf;
  }

  /** Undefined if nothing can be said of the call yet. */
  next(chunk: ToolCallChunk): ToolCallDelta | undefined {
    const known = this.#calls.get(chunk.index);
    // Some servers give every call the index 0: another id with a name begins another call.
    const begins = !known || (chunk.id && chunk.name && chunk.id !== known.providerId);
    const call: Begun = begins ? { providerId: chunk.id, position: undefined, held: {} } : known;
    this.#calls.set(chunk.index, call);
    const more = {
      ...(chunk.arguments && { arguments: (call.held.arguments ?? '') + chunk.arguments }),
      ...(chunk.providerFields && { providerFields: { ...call.held.providerFields, ...chunk.providerFields } }),
    };
    if (call.position !== undefined) {
      return Object.keys(more).length > 0 ? { index: call.position, ...more } : undefined;
    }
    call.providerId ??= chunk.id;
    call.held = { ...call.held, ...more };
    if (!chunk.name) return undefined;
    const { held } = call;
    call.position = this.#count;
    call.held = {};
    this.#count += 1;
    const { name } = chunk;
    return { index: call.position, id: this.#id(call.providerId), name, info: this.#infoOf(name), ...held };
  }

  /** Results are matched with calls by their ids, through the whole conversation; some providers reuse theirs. */
  #id(providerId: string | undefined): string {
    const isUsable = providerId && USABLE_ID.test(providerId) && !this.#taken.has(providerId);
    const id = isUsable ? providerId : newId('call');
    this.#taken.add(id);
    return id;
  }
}
