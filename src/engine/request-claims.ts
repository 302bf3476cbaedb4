import type { Catalog } from '../catalog/catalog.ts';
import { KEY_LIFETIME_MS } from '../catalog/idempotency.ts';
import { ApiError } from '../api/http/errors.ts';

/** A request without a key that comes again within this time after its answer was lost is the same request. */
const REPEAT_WITHIN_MS = 30_000;

/**
 * While a request without a key is under way its claim is renewed this often: a proxy may give up and repeat it before it
 * is answered, which can take longer than `REPEAT_WITHIN_MS`. Two renewals in a row may fail. The claim of a process that
 * has died is renewed no more, and ages.
 */
const RENEW_MS = 10_000;

interface ClaimOptions {
  catalog: Catalog;
  /** Who may repeat the request, and on what. */
  scope: string;
  /** The client's key; without one the body stands for it. */
  key: string | undefined;
  bodyHash: string;
  /** The id of what the request creates, if it is the first of its kind. */
  resourceId: string;
  /** The session that it creates, or in which it creates something. */
  sessionId: string;
}

/** A request's hold on what it creates, until one of the last three is called: one of them has to be. */
export interface RequestClaim {
  /** The same for the same request. */
  resourceId: string;
  /** False if the request came before. What it creates may exist then, or be on its way. */
  isNew: boolean;
  /** The request was refused, and has created nothing. */
  release: () => Promise<void>;
  /** The answer has reached the client, as far as one can know: without a key the same body is another request now. */
  delivered: () => Promise<void>;
  /** The answer was lost: the time in which the same body is the same request begins. */
  lost: () => Promise<void>;
}

/** Whether a request came before. Unlike `claimRequest` it writes nothing. */
export async function isClaimed(request: Omit<ClaimOptions, 'resourceId' | 'sessionId'>): Promise<boolean> {
  const { notBefore, ...slots } = slotsOf(request, new Date());
  return (await request.catalog.idempotency.taken(slots, notBefore)) !== undefined;
}

/** Finds out whether a request came before. @throws ApiError `idempotency_key_reused` */
export async function claimRequest({
  catalog,
  scope,
  key,
  bodyHash,
  resourceId,
  sessionId,
}: ClaimOptions): Promise<RequestClaim> {
  const { idempotency } = catalog;
  const now = new Date();
  const { notBefore, ...slots } = slotsOf({ catalog, scope, key, bodyHash }, now);
  const [first = '', ...others] = slots.keys;
  const slot = (others.length > 0 && (await idempotency.taken(slots, notBefore))) || first;
  const wanted = { scope, key: slot, resourceId, sessionId, bodyHash };
  const taken = await idempotency.claim({ ...wanted, now: now.toISOString() }, notBefore);
  if (!taken.isSameBody) {
    throw new ApiError('idempotency_key_reused', 'this Idempotency-Key was used with another body: use a new one');
  }
  const held = { ...wanted, resourceId: taken.resourceId };
  const renew = () => idempotency.renew(held, new Date().toISOString());
  const renewals = key === undefined ? setInterval(() => void renew().catch(() => undefined), RENEW_MS) : undefined;
  const release = async () => {
    clearInterval(renewals);
    await idempotency.release(held);
  };
  return {
    resourceId: taken.resourceId,
    isNew: taken.isNew,
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

/** Where the claim of a request stands, or may stand, and how old it may be. */
function slotsOf(
  { catalog, scope, key, bodyHash }: Pick<ClaimOptions, 'catalog' | 'scope' | 'key' | 'bodyHash'>,
  now: Date,
): { scope: string; keys: string[]; notBefore: string } {
  const lifetime = key === undefined ? REPEAT_WITHIN_MS : KEY_LIFETIME_MS;
  return {
    scope,
    keys: key === undefined ? catalog.idempotency.keysOf(bodyHash) : [`key:${key}`],
    notBefore: new Date(now.getTime() - lifetime).toISOString(),
  };
}
