import type { Client, Tool } from '@modelcontextprotocol/client';
import { inTexts, type HiddenCredentials } from './hidden-credentials.ts';
import type { Listing } from './message-bounds.ts';
import { READ_RESOURCE } from './read-resource.ts';
import { Patience, PatientFlight, type PatienceOptions } from './patient-flight.ts';

export interface ToolListOptions extends PatienceOptions {
  /** Time-out for each page of the list. */
  responseTimeoutMs: number;
  /** How long the list is reused. */
  listMaxAgeMs: number;
  credentials: Pick<HiddenCredentials, 'hide'>;
}

/** The tools of a server without credentials, cached until the server reports a change and at most for `listMaxAgeMs`. */
export class ToolList {
  /** What was left out or repaired of the last list, for the operator. */
  warnings: readonly string[] = [];
  readonly #client: Client;
  readonly #listed: Listing;
  readonly #options: ToolListOptions;
  readonly #listing: PatientFlight<Tool[]>;
  #tools: Tool[] = [];
  #byName = new Map<string, Tool>();
  #freshUntil = -Infinity;
  /** Counts invalidations, so that a listing detects one that happened while it ran. */
  #changes = 0;
  #subscribed = false;

  /** `listed`: how the tools of the client's transport were read. */
  constructor(client: Client, listed: Listing, options: ToolListOptions) {
    this.#client = client;
    this.#listed = listed;
    this.#options = options;
    this.#listing = new PatientFlight('has not listed its tools yet', new Patience(options));
    client.setNotificationHandler('notifications/tools/list_changed', () => this.invalidate());
  }

  async all(signal: AbortSignal): Promise<Tool[]> {
    if (this.#options.now() < this.#freshUntil) return this.#tools;
    return this.#listing.run(() => this.#list(), signal);
  }

  /** A tool of the last list, which may be out of date. */
  find(name: string): Tool | undefined {
    return this.#byName.get(name);
  }

  invalidate(): void {
    this.#freshUntil = -Infinity;
    this.#changes += 1;
  }

  async #list(): Promise<Tool[]> {
    const { tools: capabilities, resources } = this.#client.getServerCapabilities() ?? {};
    if (!capabilities) return [];
    const { responseTimeoutMs, listMaxAgeMs, now, credentials } = this.#options;
    // Servers of 2025-11-25 send notifications of changes without a subscription.
    const subscribes = capabilities.listChanged === true && this.#client.getProtocolEra() === 'modern';
    if (subscribes && !this.#subscribed) void this.#subscribe();
    const [changes, freshUntil] = [this.#changes, now() + listMaxAgeMs];
    const listed = await this.#client.listTools(undefined, { timeout: responseTimeoutMs, cacheMode: 'bypass' });
    // Once per list, so that its schemas stay the same objects, whose validators are kept.
    const tools = inTexts(listed.tools, credentials.hide);
    const readsResources = resources !== undefined && !tools.some(({ name }) => name === READ_RESOURCE.name);
    this.#tools = readsResources ? [...tools, READ_RESOURCE] : tools;
    this.warnings = inTexts(this.#listed.warnings, credentials.hide);
    this.#byName = new Map(this.#tools.map((tool) => [tool.name, tool]));
    if (changes === this.#changes) this.#freshUntil = freshUntil;
    return this.#tools;
  }

  /** Changes are notified only between the acknowledgement and the end of the stream. */
  async #subscribe(): Promise<void> {
    this.#subscribed = true;
    try {
      const { closed } = await this.#client.listen(
        { toolsListChanged: true },
        { timeout: this.#options.responseTimeoutMs },
      );
      this.invalidate();
      await closed;
      this.invalidate();
    } catch {
      // Some servers declare the capability but do not support it; their lists expire by age.
    } finally {
      this.#subscribed = false;
    }
  }
}
