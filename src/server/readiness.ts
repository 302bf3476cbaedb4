import type { Finding, Findings, ReadinessCheck } from '../api/http/context.ts';
import { withTimeout } from '../lib/timeout.ts';
import type { Services } from './services.ts';
import { errorMessage } from '../lib/errors.ts';

/** One thing that a process stands on. */
export interface Check {
  /** As metrics name it. */
  dependency: 'catalog' | 'blobs' | 'temporal' | 'worker' | 'redis';
  /** What to say if it does not work. */
  problem: string;
  /** Throws if it does not work. */
  run: () => Promise<unknown>;
  /** Requests are answered without it, if not as well: no reason to send them elsewhere. */
  isOptional?: boolean;
}

/** What takes longer than this does not work. */
const TIMEOUT_MS = 2_000;

/** Anybody may ask, as often as they like, and finding out writes to the stores. */
const REMEMBERED_MS = 1_000;

/** Finds out whether a process can do its work, and since when it can't. */
export class Readiness implements ReadinessCheck {
  readonly #checks: Check[];
  readonly #services: Pick<Services, 'metrics' | 'log'>;
  readonly #failingSince = new Map<Check, string>();
  readonly #now: () => number;
  #found: Promise<Findings> | undefined;
  #foundAt = Infinity;

  /** @param worker how to find out whether somebody does the work */
  constructor(
    services: Pick<Services, 'catalog' | 'blobs' | 'client' | 'redis' | 'metrics' | 'log'>,
    worker: Check,
    now = () => performance.now(),
  ) {
    this.#services = services;
    this.#checks = [...storeChecks(services), worker];
    this.#now = now;
  }

  /** Whoever asks while somebody is being answered, or shortly after, gets the same answer. */
  check(): Promise<Findings> {
    if (!this.#found || this.#now() - this.#foundAt >= REMEMBERED_MS) {
      this.#foundAt = Infinity;
      this.#found = this.#check().finally(() => (this.#foundAt = this.#now()));
    }
    return this.#found;
  }

  async #check(): Promise<Findings> {
    const found = await Promise.all(this.#checks.map((check) => this.#run(check)));
    const those = (isOptional: boolean) =>
      this.#checks.flatMap((check, i) => ((check.isOptional ?? false) === isOptional ? (found[i] ?? []) : []));
    return { problems: those(false), warnings: those(true) };
  }

  /** What is wrong, if anything is. */
  async #run(check: Check): Promise<Finding[]> {
    const { metrics, log } = this.#services;
    const { dependency, problem } = check;
    try {
      await withTimeout(TIMEOUT_MS, check.run());
      metrics.up.set({ dependency }, 1);
      if (this.#failingSince.delete(check)) log.info({ dependency }, `it is over that ${problem}`);
      return [];
    } catch (error) {
      metrics.up.set({ dependency }, 0);
      const since = this.#failingSince.get(check) ?? new Date().toISOString();
      if (!this.#failingSince.has(check)) log.warn({ dependency, err: error }, problem);
      this.#failingSince.set(check, since);
      return [{ problem, reason: errorMessage(error), since }];
    }
  }
}

function storeChecks({
  catalog,
  blobs,
  client,
  redis,
}: Pick<Services, 'catalog' | 'blobs' | 'client' | 'redis'>): Check[] {
  const { workflowService } = client.connection;
  const { namespace } = client.options;
  const checks: Check[] = [
    {
      dependency: 'catalog',
      problem: 'the catalog can not be written',
      run: () => catalog.check(new Date().toISOString()),
    },
    { dependency: 'blobs', problem: 'the blob store can not be written', run: () => blobs.check() },
    {
      dependency: 'temporal',
      problem: 'Temporal can not be reached',
      run: () =>
        client.connection.withDeadline(Date.now() + TIMEOUT_MS, () => workflowService.describeNamespace({ namespace })),
    },
  ];
  // Without it readers see each message when it is whole.
  if (redis) {
    const run = () => redis.commands.ping();
    checks.push({ dependency: 'redis', problem: 'Redis can not be reached', run, isOptional: true });
  }
  return checks;
}
