import { newId } from '../engine/new-id.ts';
import { USABLE_ID } from '../core/ids.ts';
import type { ToolCallDelta } from '../core/message.ts';
import type { ToolInfo } from '../core/records/calls.ts';
import type { ToolCallChunk } from '../models/provider.ts';

/** A tool call in progress. */
interface PartialCall {
  providerId: string | undefined;
  /** Its index in the message; undefined until its name is known. */
  position: number | undefined;
  /** The parts that were received before the name. */
  buffered: Omit<ToolCallDelta, 'index'>;
}

/**
 * Converts a provider's tool call chunks to deltas. The first delta of a call has an id, a name and the tool; indexes
 * count from 0, and ids are unique in the conversation. Providers guarantee none of this.
 */
export class ToolCallDeltas {
  readonly #calls = new Map<number, PartialCall>();
  readonly #taken: Set<string>;
  readonly #infoOf: (name: string) => ToolInfo;
  #count = 0;
  /** The ids that the provider has assigned to calls of the message. */
  readonly #assigned = new Set<string>();
  /** An id that the provider has assigned to more than one call of the message. */
  repeatedId: string | undefined;

  constructor(knownCalls: Iterable<string>, infoOf: (name: string) => ToolInfo) {
    this.#taken = new Set(knownCalls);
    this.#infoOf = infoOf;
  }

  /** Undefined as long as the call's name is not known. */
  next(chunk: ToolCallChunk): ToolCallDelta | undefined {
    const known = this.#calls.get(chunk.index);
    // Some servers give every call the index 0: a new id together with a name begins a new call.
    const begins = !known || (chunk.id && chunk.name && chunk.id !== known.providerId);
    const call: PartialCall = begins ? { providerId: chunk.id, position: undefined, buffered: {} } : known;
    this.#calls.set(chunk.index, call);
    const more = {
      ...(chunk.arguments && { arguments: (call.buffered.arguments ?? '') + chunk.arguments }),
      ...(chunk.providerFields && { providerFields: { ...call.buffered.providerFields, ...chunk.providerFields } }),
    };
    if (call.position !== undefined) {
      return Object.keys(more).length > 0 ? { index: call.position, ...more } : undefined;
    }
    call.providerId ??= chunk.id;
    call.buffered = { ...call.buffered, ...more };
    if (!chunk.name) return undefined;
    const { buffered } = call;
    call.position = this.#count;
    call.buffered = {};
    this.#count += 1;
    const { name } = chunk;
    return { index: call.position, id: this.#id(call.providerId), name, info: this.#infoOf(name), ...buffered };
  }

  /** Results are matched with calls by id over the whole conversation, but some providers reuse ids. */
  #id(providerId: string | undefined): string {
    if (providerId !== undefined && this.#assigned.has(providerId)) this.repeatedId ??= providerId;
    if (providerId) this.#assigned.add(providerId);
    const isUsable = providerId && USABLE_ID.test(providerId) && !this.#taken.has(providerId);
    const id = isUsable ? providerId : newId('call');
    this.#taken.add(id);
    return id;
  }
}
