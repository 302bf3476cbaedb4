import type { Payload, PayloadCodec } from '@temporalio/common';
import type { SerializationContext } from '@temporalio/common';
import proto from '@temporalio/proto';
import { DecryptionFailed, type Cipher } from '../encryption/cipher.ts';
import { REFUSED } from '../core/temporal-names.ts';

/** As in the other codecs for Temporal that encrypt. */
const ENCODING = Buffer.from('binary/encrypted');

const { Payload: message } = proto.temporal.api.common.v1;

/**
 * What becomes of a payload that is not encrypted, or was changed or moved: the codec of a client passes the one and throws
 * for the other. That of a worker marks both as refused, so that they are commands to nothing: see `REFUSED`. It does not
 * throw, since that would fail the workflow task, and a forged command would stop a session for ever.
 */
export type Refusal = 'throws' | 'marks';

/**
 * Encrypts the payloads of Temporal.
 *
 * A payload is bound to the id of its workflow, and to whether it is the workflow's own or of an activity. Both stand beside
 * it and are authenticated with it: in another place it cannot be decrypted. An id outlives continue-as-new, resets, and a
 * restore into another namespace or server.
 */
export class EncryptionCodec implements PayloadCodec {
  readonly #cipher: Cipher;
  readonly #refusal: Refusal;

  constructor(cipher: Cipher, refusal: Refusal = 'throws') {
    this.#cipher = cipher;
    this.#refusal = refusal;
  }

  encode(payloads: Payload[], context?: SerializationContext): Promise<Payload[]> {
    return Promise.resolve(payloads.map((payload) => this.#encode(payload, placeIn(context))));
  }

  // Async, so that what cannot be decrypted is a rejection.
  async decode(payloads: Payload[], context?: SerializationContext): Promise<Payload[]> {
    return payloads.map((payload) => this.#decodeOrRefuse(payload, context && placeIn(context)));
  }

  #encode(payload: Payload, place: Place): Payload {
    const { keyId, data } = this.#cipher.seal(message.encode(payload).finish(), nameOf(place));
    const metadata = {
      encoding: ENCODING,
      'encryption-key-id': Buffer.from(keyId),
      'encryption-owner': Buffer.from(place.owner),
      ...(place.workflowId && { 'encryption-workflow-id': Buffer.from(place.workflowId) }),
    };
    return { metadata, data };
  }

  #decodeOrRefuse(payload: Payload, place: Place | undefined): Payload {
    if (this.#refusal === 'throws') return isEncrypted(payload) ? this.#decode(payload, place) : payload;
    if (!isEncrypted(payload)) return refused('it is not encrypted: see EVERTURN_ACCEPT_UNENCRYPTED');
    try {
      return this.#decode(payload, place);
    } catch (error) {
      // A key that is missing is another matter: when it is back, this can be read.
      if (!(error instanceof DecryptionFailed)) throw error;
      return refused(error.message);
    }
  }

  #decode({ metadata, data }: Payload, place: Place | undefined): Payload {
    const boundTo: Place = {
      owner: textOf(metadata?.['encryption-owner']),
      workflowId: textOf(metadata?.['encryption-workflow-id']),
    };
    // Failures of a workflow task are not bound, and are decoded without a place: the SDK does not say whose they are.
    if (place && nameOf(place) !== nameOf(boundTo)) {
      throw new DecryptionFailed(nameOf(boundTo), `it stands in ${nameOf(place)}`);
    }
    const sealed = { keyId: textOf(metadata?.['encryption-key-id']), data: data ?? new Uint8Array() };
    return message.decode(this.#cipher.open(sealed, nameOf(boundTo)));
  }
}

interface Place {
  /** `workflow` or `activity`; empty if the SDK does not say it. */
  owner: string;
  workflowId: string;
}

function placeIn(context: SerializationContext | undefined): Place {
  return { owner: context?.type ?? '', workflowId: context?.workflowId ?? '' };
}

function nameOf({ owner, workflowId }: Place): string {
  return `temporal/${owner}/${workflowId}`;
}

function isEncrypted({ metadata }: Payload): boolean {
  return textOf(metadata?.['encoding']) === String(ENCODING);
}

function refused(reason: string): Payload {
  return { metadata: { encoding: Buffer.from(`${REFUSED}: ${reason}`) } };
}

function textOf(bytes: Uint8Array | null | undefined): string {
  return Buffer.from(bytes ?? []).toString();
}
