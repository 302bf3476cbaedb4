import type { KernelCatalog } from '../catalog/catalog.ts';
import { EngineError } from './errors.ts';
import type { Limits } from './limits.ts';

/** The longest time for which a request counts before its bytes are stored, and the catalog counts them. */
const STORING_MS = 10_000;

const MEGABYTE = 1024 * 1024;

interface Arrival {
  subject: string;
  bytes: number;
  /** Milliseconds. */
  until: number;
}

export interface StorageAdmission {
  /** `storage_full`; undefined if the request may store its bytes. */
  refusal: EngineError | undefined;
  /** To be called when the response is sent. */
  answered: () => void;
}

interface StorageQuotaOptions {
  catalog: { storedBytes: Pick<KernelCatalog['storedBytes'], 'of'> };
  limits: () => Pick<Limits, 'storedMegabytesPerSubject'>;
  /** Milliseconds. */
  now?: () => number;
}

/**
 * Limits what the sessions of each subject store. The catalog counts what is stored. In addition, the bytes of a
 * request count until its response is sent, but for a few seconds only, so that simultaneous requests are not admitted
 * as if each were alone. Requests to other processes do not count: with several processes a subject may exceed its
 * quota by what it sends to them at the same moment. Bytes that turns store while they run count for later requests.
 */
export class StorageQuota {
  readonly #options: StorageQuotaOptions;
  #arriving: Arrival[] = [];

  constructor(options: StorageQuotaOptions) {
    this.#options = options;
  }

  /** Admits a request that brings these bytes, unless it would take the subject above its quota. */
  async admit(subject: string, bytes: number): Promise<StorageAdmission> {
    const { catalog, limits, now: currentTime = Date.now } = this.#options;
    const megabytes = limits().storedMegabytesPerSubject;
    if (megabytes === Infinity) return { refusal: undefined, answered: () => undefined };
    const now = currentTime();
    const stored = await catalog.storedBytes.of(subject);
    // After the query: from here on nothing is awaited, so that simultaneous requests see each other.
    this.#arriving = this.#arriving.filter(({ until }) => until > now);
    const arriving = this.#arriving.filter((one) => one.subject === subject).reduce((sum, one) => sum + one.bytes, 0);
    const allowed = megabytes * MEGABYTE;
    if (stored + arriving + bytes <= allowed) {
      const arrival = { subject, bytes, until: now + STORING_MS };
      this.#arriving.push(arrival);
      return { refusal: undefined, answered: () => void (arrival.until = 0) };
    }
    const others = arriving > 0 ? `, ${arriving} more have arrived` : '';
    const refusal = new EngineError(
      'storage_full',
      `your sessions store ${stored} bytes${others}, and with the ${bytes} bytes of this request they would exceed the ` +
        `${allowed} bytes that one subject may store (EVERTURN_STORED_MEGABYTES_PER_SUBJECT): delete sessions or ` +
        'drafts that you do not need',
    );
    return { refusal, answered: () => undefined };
  }
}
