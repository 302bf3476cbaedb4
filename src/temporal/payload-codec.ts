import type { Payload, PayloadCodec } from '@temporalio/common';
import type { SerializationContext } from '@temporalio/common';
import proto from '@temporalio/proto';
import { DecryptionFailed, type Cipher } from '../encryption/cipher.ts';
import { REFUSED } from '../core/temporal-names.ts';

/** The encoding that Temporal's encryption samples use. */
const ENCODING = Buffer.from('binary/encrypted');

const { Payload: message } = proto.temporal.api.common.v1;

/**
 * How a payload is handled that is not encrypted, or that was changed or moved. A client's codec passes the former and
 * throws for the latter. A worker's codec marks both as refused, so that they have no effect: see `REFUSED`. It does
 * not throw, because that would fail the workflow task, and a forged command would block a session for ever.
 */
export type RefusalMode = 'throws' | 'marks';

/**
 * Encrypts Temporal's payloads.
 *
 * A payload is bound to the id of its workflow, and to whether it belongs to the workflow or to an activity. Both are
 * stored in its metadata and authenticated with it, so a payload that is moved cannot be decrypted. A workflow id
 * survives continue-as-new, resets, and a restore into another namespace or server.
 */
export class EncryptionCodec implements PayloadCodec {
  readonly #cipher: Cipher;
  readonly #refusal: RefusalMode;

  constructor(cipher: Cipher, refusal: RefusalMode = 'throws') {
    this.#cipher = cipher;
    this.#refusal = refusal;
  }

  encode(payloads: Payload[], context?: SerializationContext): Promise<Payload[]> {
    return Promise.resolve(payloads.map((payload) => this.#encode(payload, bindingOf(context))));
  }

  // Async, so that a failed decryption rejects.
  async decode(payloads: Payload[], context?: SerializationContext): Promise<Payload[]> {
    return payloads.map((payload) => this.#decodeOrRefuse(payload, context && bindingOf(context)));
  }

  #encode(payload: Payload, binding: Binding): Payload {
    const { keyId, data } = this.#cipher.seal(message.encode(payload).finish(), aadFor(binding));
    const metadata = {
      encoding: ENCODING,
      'encryption-key-id': Buffer.from(keyId),
      'encryption-owner': Buffer.from(binding.owner),
      ...(binding.workflowId && { 'encryption-workflow-id': Buffer.from(binding.workflowId) }),
    };
    return { metadata, data };
  }

  #decodeOrRefuse(payload: Payload, binding: Binding | undefined): Payload {
    if (this.#refusal === 'throws') return isEncrypted(payload) ? this.#decode(payload, binding) : payload;
    if (!isEncrypted(payload)) return refused('it is not encrypted: see EVERTURN_ACCEPT_UNENCRYPTED');
    try {
      return this.#decode(payload, binding);
    } catch (error) {
      // A missing key throws: once it is restored, the payload can be read.
      if (!(error instanceof DecryptionFailed)) throw error;
      return refused(error.message);
    }
  }

  #decode({ metadata, data }: Payload, binding: Binding | undefined): Payload {
    const boundTo: Binding = {
      owner: textOf(metadata?.['encryption-owner']),
      workflowId: textOf(metadata?.['encryption-workflow-id']),
    };
    // Failures of workflow tasks are not bound and are decoded without a context, which the SDK does not provide.
    if (binding && aadFor(binding) !== aadFor(boundTo)) {
      throw new DecryptionFailed(aadFor(boundTo), `it is stored in ${aadFor(binding)}`);
    }
    const sealed = { keyId: textOf(metadata?.['encryption-key-id']), data: data ?? new Uint8Array() };
    return message.decode(this.#cipher.open(sealed, aadFor(boundTo)));
  }
}

interface Binding {
  /** `workflow` or `activity`; empty if the SDK does not provide it. */
  owner: string;
  workflowId: string;
}

function bindingOf(context: SerializationContext | undefined): Binding {
  return { owner: context?.type ?? '', workflowId: context?.workflowId ?? '' };
}

function aadFor({ owner, workflowId }: Binding): string {
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
