import type { Finding, Findings, ReadinessCheck } from '../api/http/context.ts';
import { withTimeout } from '../lib/timeout.ts';
import type { Services } from './services.ts';
import { errorMessage } from '../lib/errors.ts';

/** A check of one dependency of the process. */
export interface Check {
  /** Its label in metrics. */
  dependency: 'catalog' | 'blobs' | 'temporal' | 'worker' | 'redis';
  /** The message if the check fails. */
  problem: string;
  /** Rejects if the dependency does not work. */
  run: () => Promise<unknown>;
  /** Requests are handled without it, if less well, so a failure does not make the process unready. */
  isOptional?: boolean;
}

/** A check that takes longer has failed. */
const TIMEOUT_MS = 2_000;

/** Checks write to the stores, and any client may request them at any rate. */
const CACHE_MS = 1_000;

type StoreServices = Pick<Services, 'catalog' | 'blobs' | 'client' | 'redis'>;

/** Checks whether the process can do its work, and since when it cannot. */
export class Readiness implements ReadinessCheck {
  readonly #checks: Check[];
  readonly #services: Pick<Services, 'metrics' | 'log'>;
  readonly #failingSince = new Map<Check, string>();
  readonly #now: () => number;
  #findings: Promise<Findings> | undefined;
  #checkedAt = Infinity;

  /** @param worker checks that a worker runs */
  constructor(
    services: StoreServices & Pick<Services, 'metrics' | 'log'>,
    worker: Check,
    now = () => performance.now(),
  ) {
    this.#services = services;
    this.#checks = [...storeChecks(services), worker];
    this.#now = now;
  }

  /** Concurrent callers share a check, and its result is cached for a second. */
  check(): Promise<Findings> {
    if (!this.#findings || this.#now() - this.#checkedAt >= CACHE_MS) {
      this.#checkedAt = Infinity;
      this.#findings = this.#check().finally(() => (this.#checkedAt = this.#now()));
    }
    return this.#findings;
  }

  async #check(): Promise<Findings> {
    const found = await Promise.all(this.#checks.map((check) => this.#run(check)));
    const select = (isOptional: boolean) =>
      this.#checks.flatMap((check, i) => ((check.isOptional ?? false) === isOptional ? (found[i] ?? []) : []));
    return { problems: select(false), warnings: select(true) };
  }

  /** Returns a finding if the check fails. */
  async #run(check: Check): Promise<Finding[]> {
    const { metrics, log } = this.#services;
    const { dependency, problem } = check;
    try {
      await withTimeout(TIMEOUT_MS, check.run());
      metrics.up.set({ dependency }, 1);
      if (this.#failingSince.delete(check)) log.info({ dependency }, `recovered: ${problem}`);
      return [];
    } catch (error) {
      metrics.up.set({ dependency }, 0);
      const since = this.#failingSince.get(check) ?? new Date().toISOString();
      if (!this.#failingSince.has(check)) log.warn({ dependency, reason: errorMessage(error) }, problem);
      this.#failingSince.set(check, since);
      return [{ problem, reason: errorMessage(error), since }];
    }
  }
}

function storeChecks({ catalog, blobs, client, redis }: StoreServices): Check[] {
  const { workflowService } = client.connection;
  const { namespace } = client.options;
  const checks: Check[] = [
    {
      dependency: 'catalog',
      problem: 'the catalog cannot be used',
      run: () => catalog.check(new Date().toISOString()),
    },
    { dependency: 'blobs', problem: 'the blob store cannot be written', run: () => blobs.check() },
    {
      dependency: 'temporal',
      problem: 'Temporal cannot be reached',
      run: () =>
        client.connection.withDeadline(Date.now() + TIMEOUT_MS, () => workflowService.describeNamespace({ namespace })),
    },
  ];
  // Optional: without Redis, readers get each message when it is complete.
  if (redis) {
    const run = () => redis.commands.ping();
    checks.push({ dependency: 'redis', problem: 'Redis cannot be reached', run, isOptional: true });
  }
  return checks;
}
