import type { Payload, PayloadCodec } from '@temporalio/common';
import type { SerializationContext } from '@temporalio/common';
import proto from '@temporalio/proto';
import { DecryptionFailed, type Cipher } from '../encryption/cipher.ts';

/** As in the other codecs for Temporal that encrypt. */
const ENCODING = Buffer.from('binary/encrypted');

const { Payload: message } = proto.temporal.api.common.v1;

/**
 * Encrypts the payloads of Temporal. What was not encrypted by it passes through as it is.
 *
 * A payload is bound to the id of its workflow, which stands beside it and is authenticated with it: taken into another
 * workflow it can't be decrypted. An id outlives continue-as-new, resets, and a restore into another namespace or server.
 */
export class EncryptionCodec implements PayloadCodec {
  readonly #cipher: Cipher;

  constructor(cipher: Cipher) {
    this.#cipher = cipher;
  }

  encode(payloads: Payload[], context?: SerializationContext): Promise<Payload[]> {
    const workflowId = context?.workflowId ?? '';
    return Promise.resolve(payloads.map((payload) => this.#encode(payload, workflowId)));
  }

  // Async, so that what can't be decrypted is a rejection.
  async decode(payloads: Payload[], context?: SerializationContext): Promise<Payload[]> {
    return payloads.map((payload) => this.#decode(payload, context?.workflowId));
  }

  #encode(payload: Payload, workflowId: string): Payload {
    const { keyId, data } = this.#cipher.seal(message.encode(payload).finish(), placeOf(workflowId));
    const metadata = {
      encoding: ENCODING,
      'encryption-key-id': Buffer.from(keyId),
      ...(workflowId && { 'encryption-workflow-id': Buffer.from(workflowId) }),
    };
    return { metadata, data };
  }

  #decode(payload: Payload, workflowId: string | undefined): Payload {
    const { metadata, data } = payload;
    if (!metadata || !data || textOf(metadata['encoding']) !== String(ENCODING)) return payload;
    const boundTo = textOf(metadata['encryption-workflow-id']);
    const place = placeOf(boundTo);
    // Failures of a workflow task are not bound: the SDK does not say whose they are.
    if (boundTo && workflowId && boundTo !== workflowId) {
      throw new DecryptionFailed(place, `it stands in the workflow ${workflowId}`);
    }
    return message.decode(this.#cipher.open({ keyId: textOf(metadata['encryption-key-id']), data }, place));
  }
}

function placeOf(workflowId: string): string {
  return `temporal/${workflowId}`;
}

function textOf(bytes: Uint8Array | null | undefined): string {
  return Buffer.from(bytes ?? []).toString();
}
