import type { KernelCatalog } from '../catalog/catalog.ts';
import { KEY_LIFETIME_MS } from '../catalog/idempotency.ts';
import { FOREVER } from '../catalog/session-states.ts';
import type { Caller } from '../core/subject.ts';
import { hashOf } from '../lib/hash.ts';
import { EngineError, isRejected } from './errors.ts';
import { newId } from './new-id.ts';

/** An equal request without a key is a repetition within this time after the first one's response was lost. */
const REPEAT_WITHIN_MS = 30_000;

/**
 * The claim of a request without a key is renewed this often while the request is in progress: a response can take
 * longer than `REPEAT_WITHIN_MS`, and a proxy may time out and repeat the request before that. Two consecutive renewals
 * may fail. The claim of a process that has died expires, because it is no longer renewed.
 */
const RENEW_MS = 10_000;

/** What makes two requests the same. */
export interface RequestIdentity {
  catalog: KernelCatalog;
  /** The caller, and the resource that the request is for. */
  scope: string;
  /** The client's idempotency key; without one the body identifies the request. */
  key: string | undefined;
  bodyHash: string;
}

interface ClaimOptions extends RequestIdentity {
  /** The id of what the request creates, unless it is a repetition. */
  resourceId: string;
  /** The session that the request creates, or in which it creates something. */
  sessionId: string;
  /** The key is claimed for as long as the session exists. */
  isKept?: boolean;
}

/** A request's claim on what it creates. The caller ends it by calling one of the last three functions. */
export interface RequestClaim {
  /** Equal for equal requests. */
  resourceId: string;
  /** False for a repetition. What the request creates may exist already, or be in progress. */
  isNew: boolean;
  /** The request was rejected and has created nothing. */
  release: () => Promise<void>;
  /** The response was handed to the network: without a key, the same body is a new request from now on. */
  delivered: () => Promise<void>;
  /** The response was lost: the time in which the same body counts as a repetition starts. */
  lost: () => Promise<void>;
}

/** The claim of a request that others may repeat. */
export interface SharedClaim extends RequestClaim {
  /**
   * Claims it again: the request that was first may have been rejected, which has released the key. False if another
   * request has claimed the key since.
   */
  confirm: () => Promise<boolean>;
}

const nothing = () => Promise.resolve();

/** The claim of a request that no other one repeats. */
export function soleClaim(resourceId: string): SharedClaim {
  return {
    resourceId,
    isNew: true,
    confirm: () => Promise.resolve(true),
    release: nothing,
    delivered: nothing,
    lost: nothing,
  };
}

/** Whether the request is a repetition. Unlike `claimRequest` this writes nothing. */
export async function isClaimed(request: RequestIdentity): Promise<boolean> {
  const { notBefore, ...slots } = slotsOf(request, new Date());
  return (await request.catalog.idempotency.taken(slots, notBefore)) !== undefined;
}

/** Claims what a request creates, or finds the claim that it repeats. @throws EngineError `idempotency_key_reused` */
export async function claimRequest(options: ClaimOptions): Promise<SharedClaim> {
  const { catalog, scope, key, bodyHash, resourceId, sessionId, isKept = false } = options;
  const { idempotency } = catalog;
  const now = new Date();
  const { notBefore, ...slots } = slotsOf(options, now);
  const [first = '', ...others] = slots.keys;
  const slot = (others.length > 0 && (await idempotency.taken(slots, notBefore))) || first;
  const requested = { scope, key: slot, resourceId, sessionId, bodyHash };
  const from = isKept ? FOREVER : now.toISOString();
  const taken = await idempotency.claim({ ...requested, now: from }, notBefore);
  if (!taken.isSameBody) {
    throw new EngineError('idempotency_key_reused', 'this Idempotency-Key was used with another body: use a new one');
  }
  const claimed = { ...requested, resourceId: taken.resourceId };
  const renew = () => idempotency.renew(claimed, new Date().toISOString());
  const renewals = key === undefined ? setInterval(() => void renew().catch(() => undefined), RENEW_MS) : undefined;
  const release = async () => {
    clearInterval(renewals);
    await idempotency.release(claimed);
  };
  return {
    resourceId: taken.resourceId,
    isNew: taken.isNew,
    confirm: async () => (await idempotency.claim({ ...claimed, now: from }, notBefore)).isNew,
    release,
    delivered: async () => {
      if (key === undefined) await release();
    },
    lost: async () => {
      clearInterval(renewals);
      if (key === undefined) await renew();
    },
  };
}

export interface NamedRequest extends Omit<ClaimOptions, 'scope' | 'bodyHash' | 'resourceId'> {
  /** The id of what the request creates, unless it is a repetition; by default one that names the request. */
  resourceId?: string;
  caller: Caller;
  /** The resource that the request is for. */
  resource: string;
  /** Equal for equal requests. */
  body: unknown;
}

/**
 * Claims what a request creates, under its idempotency key. Without a key two requests are two, however equal they are.
 * @throws EngineError `idempotency_key_reused`
 */
export async function claimByKey({
  caller,
  resource,
  body,
  resourceId = newId('req'),
  ...request
}: NamedRequest): Promise<SharedClaim> {
  if (request.key === undefined) return soleClaim(resourceId);
  // Only with a key: hashing a body of 30 MB takes 160 ms.
  const scope = `${caller.subject.subjectId}/${resource}`;
  return claimRequest({ ...request, resourceId, scope, bodyHash: hashOf(body) });
}

/**
 * Claims a request under its idempotency key, and does its work: see `claimByKey` and `withClaim`.
 * @throws EngineError `idempotency_key_reused`
 */
export async function byKey<T>(request: NamedRequest, work: (claim: RequestClaim) => Promise<T>): Promise<T> {
  const claim = await claimByKey(request);
  return withClaim(claim, () => work(claim));
}

/** Does the work of a request with an idempotency key, which can be used again if the first request is rejected. */
export async function withClaim<T>(
  { isNew, release }: Pick<RequestClaim, 'isNew' | 'release'>,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isNew && isRejected(error)) await release();
    throw error;
  }
}

/** The keys under which a request's claim may be stored, and the time before which it has expired. */
function slotsOf(
  { catalog, scope, key, bodyHash }: RequestIdentity,
  now: Date,
): { scope: string; keys: string[]; notBefore: string } {
  const lifetime = key === undefined ? REPEAT_WITHIN_MS : KEY_LIFETIME_MS;
  return {
    scope,
    keys: key === undefined ? catalog.idempotency.keysOf(bodyHash) : [`key:${key}`],
    notBefore: new Date(now.getTime() - lifetime).toISOString(),
  };
}
